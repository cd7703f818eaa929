"""Hypotheses: how long it takes to say what is still possible, which truncation asks after every step.

The games of questions in their largest settings: four of ten digits; four circuits of 17 candidates with four inputs,
known to differ; five weights in tenths; stories of five parts. Each is asked random questions to the end; after every
answer the number of hypotheses is asked for, and whether one of them is among them.

Milliseconds are those of the process on a processor: medians and the longest over all steps. Nothing is asked twice of
a state, so no cache of the answer helps; what an earlier step left may be remembered, as in training.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from random import Random
from statistics import median
from typing import Any

from common import arguments, milliseconds, report

from hf_credit import make
from hf_credit.oracles import hypotheses

LARGEST: Mapping[str, Mapping[str, Any]] = {
    "guess_numbers": {"source": "ar_bench"},
    "circuit_decoding": {"circuits": 4, "candidates": 17, "inputs": 4, "distinct": True},
    "preference_estimation": {"attributes": 5},
    "situation_puzzles": {"slots": 5, "values": 6},
}
"""Options by game; those of MovieRecommendation are the weights of PreferenceEstimation."""


def asked(name: str, options: Mapping[str, Any], games: int) -> Iterator[Any]:
    """The states after every answer, of randomly asked games."""
    environment: Any = make(name, **options)
    for seed in range(games):
        draws = Random(seed)
        state = environment.initial_state(environment.sample_task(seed), seed)
        while True:
            queries = [one for one in environment.legal_actions(state) if one.startswith("interact ")]
            if not queries:
                break
            state = environment.step(state, draws.choice(queries)).state
            if state.status == "active":
                yield state


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    return [_line(name, own, options.games) for name, own in LARGEST.items()]


def _line(name: str, options: Mapping[str, Any], games: int) -> dict[str, Any]:
    environment: Any = make(name, **options)
    most = hypotheses.size(environment.initial_state(environment.sample_task(0), 0))
    sizes, contains = [], []
    for state in asked(name, options, games):
        sizes.append(milliseconds(lambda state=state: hypotheses.size(state)))
        one = hypotheses.members(state)[0]
        contains.append(milliseconds(lambda state=state, one=one: hypotheses.contains(state, one)))
    return {
        "game": name,
        "hypotheses": most,
        "steps": len(sizes),
        "size, ms": median(sizes),
        "longest": max(sizes),
        "membership, ms": median(contains),
        "the longest": max(contains),
    }


def main(arguments_given: list[str] | None = None) -> None:
    options = arguments(__doc__, games=10).parse_args(arguments_given)
    text = "Milliseconds to count what is still possible, and to ask whether one is. The aim is 5 a step."
    report(options, "hypotheses", text, compare(options))


if __name__ == "__main__":
    main()
