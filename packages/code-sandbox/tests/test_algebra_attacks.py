r"""Answers that try to become programs, each shown to work where nothing stands before the library.

The way is always the same: LaTeX text becomes the name of a symbol, and SymPy compiles names where it sums a series by
their ratio. A name cannot hold round brackets or blanks, so the code calls through `__class_getitem__`. All that it
does is to make an empty file.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from code_sandbox.algebra import Worker
from code_sandbox.notation import refusal_of_text, refusal_of_tree

pytest.importorskip("math_verify")
WORKER = Worker()


@pytest.fixture(scope="module", autouse=True)
def _end_process() -> Iterator[None]:
    yield
    WORKER.close()


def name(program: str) -> str:
    """A name without blanks, round brackets, quotes and capitals that runs a program when it is evaluated."""
    letters = "+".join(f"c[{ord(letter)}]" for letter in program)
    called = "for[c.__class_getitem__]in"
    return f"[[c[s]]for[c]in[[exit.__class__]]for[s]in[[{letters}{called}[[chr]]]]{called}[[exec]]]"


def hidden(text: str) -> str:
    """The same with marks that the library deletes, so that no word has three letters."""
    return re.sub(r"([A-Za-z]{2})(?=[A-Za-z])", r'\1"', text)


def series(symbol: str) -> str:
    return rf"\sum_{{k\equiv 0}}^{{\infty}} \frac{{{symbol}^k}}{{k!}}"


def text(code: str) -> str:
    return series(r"\text{" + name(code) + "}") + "+1"


ATTACKS = {
    "text": text,
    "hidden from a search for words": lambda code: series(r'\text"{' + hidden(name(code)) + "}") + "+1",
    "bold": lambda code: series(r"\mathbf{" + name(code) + "}") + "+1",
    "a command cut in two": lambda code: series(r"\te\displaystyle xt{" + name(code) + "}") + "+1",
}
EVALUATED = [way for way in ATTACKS if way != "a command cut in two"]

LOOSE = """
import json, sys
from math_verify import LatexExtractionConfig, parse, verify
read = lambda text: parse(f"${text}$", [LatexExtractionConfig(boxed_match_priority=-1)], parsing_timeout=None)
for gold, answer in json.loads(sys.argv[1]):
    print(verify(read(gold), read(answer), timeout_seconds=None), end=" ")
"""


def loose(*pairs: tuple[str, str]) -> list[str]:
    """Returns the verdicts of the library, called directly in one process."""
    done = subprocess.run(
        [sys.executable, "-c", LOOSE, json.dumps(pairs)], capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout.split()


FORGERY = "import math_verify.grader as g;g.sympy_expr_eq=lambda *a,**k:True"


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], list[str]]:
    """The file that each attack is to make, and the verdicts of the library, called directly: of each, of a forgery,
    and of what follows it."""
    folder = tmp_path_factory.mktemp("unguarded")
    made = {way: folder / f"made-{place}" for place, way in enumerate(EVALUATED)}
    pairs = [("5x", ATTACKS[way](f"open({str(path)!r},'w')")) for way, path in made.items()]
    return made, loose(*pairs, ("5x", text(FORGERY)), ("5x", "6x"))


@pytest.mark.parametrize("way", EVALUATED)
def test_an_attack_runs_without_the_lists_before_the_library(
    way: str, unguarded: tuple[dict[str, Path], list[str]]
) -> None:
    assert unguarded[0][way].exists()


@pytest.mark.parametrize("way", ATTACKS)
@pytest.mark.parametrize("side", ["answer", "gold"])
def test_no_answer_and_no_gold_answer_runs_as_a_program(way: str, side: str, tmp_path: Path) -> None:
    target = tmp_path / "made"
    said = ATTACKS[way](f"open({str(target)!r},'w')")
    assert not WORKER.equal(*((said, "5x") if side == "gold" else ("5x", said)))
    assert not target.exists()


@pytest.mark.parametrize("way", ATTACKS)
def test_the_text_is_refused_before_it_is_read(way: str) -> None:
    assert refusal_of_text(ATTACKS[way]("1")) is not None


@pytest.mark.parametrize("way", ["text", "bold"])
def test_the_tree_is_refused_before_it_is_evaluated(way: str) -> None:
    from latex2sympy2_extended import latex2sympy

    said = ATTACKS[way]("1").replace("mathbf", "text").replace(r"\equiv", "=")
    assert refusal_of_tree(latex2sympy(said, is_real=True, normalization_config=None)) is not None
    just_name = latex2sympy(r"\text{" + name("1") + "}+1", is_real=True, normalization_config=None)
    assert refusal_of_tree(just_name) == "a symbol has a long name"


def test_a_verdict_cannot_be_forged_for_later_questions(unguarded: tuple[dict[str, Path], list[str]]) -> None:
    said = text(FORGERY)
    assert unguarded[1][-1] == "True"
    assert not WORKER.equal("5x", said)
    assert not WORKER.equal("5x", "6x")


# The child itself, if some text were a program after all


def letters(compare: str, level: str, questions: int = 1) -> list[str]:
    """Returns the answers of children with a hostile comparison."""
    script = """
    import os, socket, sys
    from code_sandbox import algebra_process as algebra
    from code_sandbox.inside.channel import Channel

    {compare}

    sys.path[:] = algebra.standard_library()
    confinement = algebra.confine()[0] if {level!r} == "best" else algebra.Confinement("none")
    if {level!r} == "best" and confinement.level == "none":
        print("lacking")
        raise SystemExit
    ours, theirs = socket.socketpair()
    server = os.fork()
    if server == 0:
        ours.close()
        algebra.Server(Channel(theirs), confinement, compare, algebra.Bounds(1 << 29, 1, 0), 20.0).serve()
        os._exit(0)
    theirs.close()
    for _ in range({questions}):
        near, far = socket.socketpair()
        near.sendall(b'["1", "2"]')
        socket.send_fds(ours, [b"?"], [far.fileno()])
        far.close()
        print(near.recv(1).decode())
    ours.close()
    os.waitpid(server, 0)
    """
    words = textwrap.dedent(script).format(compare=textwrap.dedent(compare), level=level, questions=questions)
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=120, check=True)
    found = done.stdout.split()
    if found == ["lacking"]:
        pytest.skip("this machine confines nothing")
    return found


ATTEMPTS = {
    "write a file": "open({path!r}, 'w')",
    "read a file": "open('/etc/passwd').read()",
    "list processes": "os.listdir('/proc/self')",
    "open a socket": "socket.socket()",
    "fork": "os.fork() or os._exit(0)",
    "start a program": "os.execv('/bin/true', ['true'])",
    "signal its parent": "os.kill(os.getppid() or -1, 0)",
    "read its parent's environment": "open('/proc/%d/environ' % os.getppid()).read()",
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_child_can_do_nothing_but_compute(attempt: str, tmp_path: Path) -> None:
    act = ATTEMPTS[attempt].format(path=str(tmp_path / "made"))
    hostile = (
        f"def compare(*_):\n    try:\n        {act}\n        return False\n    except OSError:\n        return True"
    )
    assert letters(hostile, "best") == ["e"]
    assert letters(hostile, "none") != ["e"]  # and could where nothing confines it


def test_a_child_leaves_nothing_to_the_next_one() -> None:
    hostile = "seen = []\ndef compare(gold, said):\n    seen.append(gold)\n    return len(seen) == 1"
    assert letters(hostile, "best", questions=3) == ["e", "e", "e"]


@pytest.mark.parametrize(
    ("act", "letter"),
    [
        ("while True: pass", "t"),
        ("9**9**9", "t"),
        ("signal.setitimer(signal.ITIMER_PROF, 0)\n    while True: pass", "t"),
        ("bytearray(1 << 30)", "m"),
        ("os.abort()", "x"),
        ("os._exit(0)", "x"),
        ("1 / 0", "f"),
    ],
)
def test_children_beyond_a_limit_and_children_that_end_differ(act: str, letter: str) -> None:
    assert letters(f"import signal\ndef compare(gold, said):\n    {act}", "best") == [letter]
