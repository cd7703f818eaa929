"""The enumeration of all draws."""

from __future__ import annotations

import pytest

from hf_credit_bench.play import Ways


def test_every_combination_of_draws_comes_once_with_its_probability() -> None:
    ways = Ways()

    def run() -> tuple[int, ...]:
        first = ways.choose([0.25, 0.0, 0.75])
        return (first, ways.choose([0.5, 0.5])) if first else (first,)

    assert {result: share for share, result in ways.all(run)} == {(0,): 0.25, (2, 0): 0.375, (2, 1): 0.375}


def test_a_seed_and_a_step_have_one_uniform_number() -> None:
    ways = Ways()

    def run() -> tuple[int, int]:
        return ways.chance(7, 1, [0.3, 0.7]), ways.chance(7, 1, [0.5, 0.5])

    found = {result: share for share, result in ways.all(run)}
    # Below .3 both fall to the first; between .3 and .5 the second asker alone.
    assert found == {(0, 0): pytest.approx(0.3), (1, 0): pytest.approx(0.2), (1, 1): pytest.approx(0.5)}


def test_other_seeds_and_steps_are_drawn_anew() -> None:
    ways = Ways()
    found = list(ways.all(lambda: (ways.chance(1, 1, [0.5, 0.5]), ways.chance(1, 2, [0.5, 0.5]))))
    assert [share for share, _ in found] == [0.25] * 4
