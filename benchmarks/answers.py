"""Answers: mathematical answers checked a second, compared with math-verify called directly.

Three kinds of pairs of gold answer and reply, made from fixed seeds: integers, other rational numbers, and expressions
that take algebra, each right in half of the replies. The other side calls `parse` and `verify` of math-verify in this
process, for every reply and its gold answer, as a loop over a dataset would; its alarm is left on, as by default.

The two sides differ: ours finds the answer in the reply by its own rules, decides numbers without algebra and asks
a confined child of a second process about each of the rest. Seconds are those on the clock, since
those of the other processes count as well.
"""

from __future__ import annotations

import argparse
import functools
import random
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from common import arguments, report, take_turns
from math_verify import parse, verify

from hf_credit.verifiers.math import WORKER, counts, score

Pair = tuple[str, str, bool]
"""A gold answer, a reply, and whether it is right."""


def integers(draws: random.Random) -> tuple[str, str, str]:
    """A gold answer, the same written otherwise, and another number."""
    number = draws.randrange(1000, 10**6)
    return str(number), f"{number:,}", str(number + draws.randrange(1, 99))


def rationals(draws: random.Random) -> tuple[str, str, str]:
    top, bottom = draws.randrange(1, 99), draws.choice([2, 4, 5, 8, 10, 20, 25])
    return rf"\frac{{{top}}}{{{bottom}}}", str(top / bottom), rf"\frac{{{top + 1}}}{{{bottom}}}"


def expressions(draws: random.Random) -> tuple[str, str, str]:
    a, b, c = (draws.randrange(2, 30) for _ in range(3))
    return draws.choice(
        [
            (rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{a * a * b}}}", rf"{a + 1}\sqrt{{{b}}}"),
            (f"{a}x^2 + {b}x - {c}", f"-{c} + {b}x + {a}x^2", f"{a}x^2 - {b}x - {c}"),
            (rf"(-\infty, {a}) \cup ({a + b}, \infty)", rf"({a + b}, \infty) \cup (-\infty, {a})", rf"({a}, \infty)"),
            (
                rf"\begin{{pmatrix}} {a} \\ -{b} \end{{pmatrix}}",
                rf"\begin{{pmatrix}} {a}.0 \\ \frac{{-{2 * b}}}{{2}} \end{{pmatrix}}",
                rf"\begin{{pmatrix}} {a} \\ {b} \end{{pmatrix}}",
            ),
            (rf"{a} + {b}\pi", rf"{b}\pi + {a}", rf"{a} - {b}\pi"),
        ]
    )


KINDS: dict[str, Callable[[random.Random], tuple[str, str, str]]] = {
    "integers": integers,
    "rationals": rationals,
    "expressions": expressions,
}


def pairs_of(kind: str, count: int, turn: int) -> list[Pair]:
    """Replies of a few sentences, half of them right; others each turn, since results are remembered."""
    draws = random.Random(f"{kind} {turn}")
    made = []
    for place in range(count):
        gold, same, other = KINDS[kind](draws)
        said = other if place % 2 else same
        reply = rf"We look at ${draws.randrange(99)} + x$ first. After some steps the answer is $\boxed{{{said}}}$."
        made.append((gold, reply, not place % 2))
    return made


def ours(pairs: Sequence[Pair]) -> tuple[float, int]:
    """Seconds, and how many were judged rightly."""
    begun = time.perf_counter()
    right = sum((score(reply, gold) == 1.0) == truth for gold, reply, truth in pairs)
    return time.perf_counter() - begun, right


def theirs(pairs: Sequence[Pair]) -> tuple[float, int]:
    """The same with the library in this process."""
    begun = time.perf_counter()
    right = sum(verify(parse(f"${gold}$"), parse(reply)) == truth for gold, reply, truth in pairs)
    return time.perf_counter() - begun, right


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    table = []
    for kind in KINDS:
        turns = [pairs_of(kind, options.answers, turn) for turn in range(options.repeats + 1)]
        sides = {}
        for name, side in (("hf-credit", ours), ("math-verify, directly", theirs)):
            side(turns[0][:4])
            sides[name] = functools.partial(next, map(side, turns[1:]))
        played = take_turns(sides, options.repeats)
        base = [seconds for seconds, _ in played["math-verify, directly"]]
        for name, runs in played.items():
            taken = [seconds for seconds, _ in runs]
            table.append(
                {
                    "answers": kind,
                    "checker": name,
                    "answers/s": options.answers / median(taken),
                    "ratio": median(other / own for own, other in zip(taken, base, strict=True)),
                    "judged rightly": f"{runs[0][1]}/{options.answers}",
                }
            )
    if not options.attacks:
        return table
    begun = time.perf_counter()
    for place in range(options.attacks):
        score(rf"\boxed{{9^{{9^{{9^{{{place + 9}}}}}}}}}", str(place))
    seconds = time.perf_counter() - begun
    assert counts()["given_up"] >= options.attacks
    row = {"answers": "towers of powers", "checker": "hf-credit", "answers/s": options.attacks / seconds}
    return [*table, {**row, "ratio": None, "judged rightly": f"{options.attacks}/{options.attacks}"}]


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(__doc__, answers=200, attacks=3, repeats=5)
    options = parser.parse_args(arguments_given)
    rows = compare(options)
    WORKER.close()
    text = (
        "Mathematical answers checked a second, on the clock, by one caller; medians over repeats in turns. Numbers "
        "are decided without algebra; expressions take a confined process each. A tower of powers is refused before "
        "it is computed; the library called directly is left out there, as its alarm cannot interrupt the computation."
    )
    report(options, "answers", text, rows)


if __name__ == "__main__":
    main()
