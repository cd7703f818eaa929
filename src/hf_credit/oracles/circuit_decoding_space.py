"""The hypotheses of CircuitDecoding: for each circuit the candidates that agree with its outputs, in all combinations.

A hypothesis is a tuple of candidates' numbers. Where circuits are drawn independently, H is the product over circuits;
where they are known to differ, the combinations without repetition are counted jointly.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from hf_credit.environments.circuit_decoding import (
    LABELS,
    CircuitDecodingState,
    bit,
    output,
    read_query,
    tables,
    written,
)
from hf_credit.environments.queries import ANSWER, INTERACT


def members(state: CircuitDecodingState) -> list[tuple[int, ...]]:
    """The combinations that agree with all outputs so far, in ascending order."""
    every = product(*candidates_left(state))
    return [one for one in every if not state.distinct or len(set(one)) == len(one)]


def size(state: CircuitDecodingState) -> int:
    """How many they are."""
    return _count(candidates_left(state), state.distinct)


def contains(state: CircuitDecodingState, hypothesis: Any) -> bool:
    """Whether a combination is among them."""
    left = candidates_left(state)
    return (
        isinstance(hypothesis, tuple)
        and len(hypothesis) == len(left)
        and all(number in possible for number, possible in zip(hypothesis, left, strict=True))
        and (not state.distinct or len(set(hypothesis)) == len(hypothesis))
    )


def good_actions(state: CircuitDecodingState) -> frozenset[str]:
    """The queries whose likelier answer leaves least, or the answers that are possible where it is time to answer."""
    left = candidates_left(state)
    if size(state) == 1 or state.left == 1:
        return frozenset(f"{ANSWER} {', '.join(map(str, one))}" for one in members(state))
    found = tables(state.candidates, state.inputs)
    worst: dict[str, int] = {}
    for circuit, label in enumerate(LABELS[: len(left)]):
        for bits in map("".join, product("01", repeat=state.inputs)):
            parts = ([number for number in left[circuit] if bit(found[number - 1], bits) == told] for told in (0, 1))
            worst[f"{label}{bits}"] = max(
                _count([*left[:circuit], part, *left[circuit + 1 :]], state.distinct) for part in parts
            )
    least = min(worst.values())
    return frozenset(f"{INTERACT} {written(query, state.brief)}" for query, rest in worst.items() if rest == least)


def normal(state: CircuitDecodingState, verb: str, content: str) -> str:
    """The spelling of an action that `good_actions` has."""
    if verb == INTERACT:
        query = read_query(state, content)
        return f"{verb} {content if query is None else written(query, state.brief)}"
    return f"{verb} {', '.join(number.strip() for number in content.split(','))}"


def candidates_left(state: CircuitDecodingState) -> list[list[int]]:
    """For each circuit, the numbers of the candidates that agree with its outputs."""
    found = tables(state.candidates, state.inputs)
    told = [(query, output(state, query)) for query in dict.fromkeys(state.queries)]
    return [
        [
            number
            for number, table in enumerate(found, start=1)
            if all(bit(table, query[1:]) == seen for query, seen in told if query[0] == label)
        ]
        for label in LABELS[: len(state.hidden)]
    ]


def _count(left: Sequence[Sequence[int]], distinct: bool) -> int:
    """The combinations; without repetition by going through the candidates, each taken by one circuit at most."""
    if not distinct:
        return prod(map(len, left))
    ways = [1] + [0] * (2 ** len(left) - 1)  # by the set of circuits that have a candidate
    for number in functools.reduce(set.union, map(set, left)):
        takers = [1 << circuit for circuit, possible in enumerate(left) if number in possible]
        ways = [
            already + sum(ways[done ^ taker] for taker in takers if done & taker) for done, already in enumerate(ways)
        ]
    return ways[-1]
