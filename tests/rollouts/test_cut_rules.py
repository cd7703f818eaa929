"""Rules that read what is still possible, on games small enough to count by eye."""

from __future__ import annotations

from typing import Any

import pytest

from hf_credit import make
from hf_credit.rollouts import EnvironmentInteraction, Truncated, make_rule


def walk(game: Truncated[Any], task: dict[str, Any], *replies: str) -> Any:
    state = game.start({**task, "seed": 0}, 0)
    for reply in replies:
        state = game.advance(state, [reply])
    return state


# Of 1 to 4: the first guess 123 has two digits in place, so the secret is 124, 143 or 423.
GUESSES = {"digits": 3, "symbols": 4, "secret": "124", "first_guess": "123"}


def guessing(rule: str, cut: str = "hard", **options: Any) -> Truncated[Any]:
    return Truncated(EnvironmentInteraction(make("guess_numbers", digits=3)), make_rule(rule, **options), cut)


def ask(guess: str) -> str:
    return f"<interact>{guess}</interact>"


def test_a_guess_that_is_ruled_out_before_it_is_asked_is_outside_though_it_may_shrink_what_is_possible() -> None:
    # 143 is possible and leaves 124 and 423; 412 is not, and yet it tells the three apart.
    assert walk(guessing("outside"), GUESSES, ask("143")).progress == (1.0,)
    assert walk(guessing("outside"), GUESSES, ask("412")).cut == 1
    assert walk(guessing("shrink"), GUESSES, ask("143"), ask("124")).progress == (1.0, 1.0)
    assert walk(guessing("shrink"), GUESSES, ask("412")).progress == (2.0,)


def test_the_right_guess_again_is_possible_and_leaves_as_many() -> None:
    again = (ask("143"), ask("124"), ask("124"))
    assert walk(guessing("outside"), GUESSES, *again).cut is None
    assert walk(guessing("shrink", window=1), GUESSES, *again).cut == 3


def test_the_first_guess_counts_and_the_feedback_of_the_guess_itself_does_not() -> None:
    assert walk(guessing("outside"), GUESSES, ask("123")).cut == 1  # it was answered before the first turn
    assert walk(guessing("outside"), GUESSES, ask("143")).cut is None  # ruled out only by its own feedback


def test_stalls_in_all_or_in_a_row() -> None:
    asked = (ask("123"), ask("143"), ask("123"))
    assert walk(guessing("shrink", window=2), GUESSES, *asked).cut is None
    assert walk(guessing("shrink", window=2, consecutive=False), GUESSES, *asked).cut == 3


def test_a_soft_cut_asks_for_the_number() -> None:
    game = guessing("outside", cut="soft")
    state = walk(game, GUESSES, ask("123"))
    (request,) = game.pending(state)
    assert request.messages[-1]["content"].endswith("Now give your final answer inside <answer> and </answer>.")
    right = game.advance(state, ["<answer>124</answer>"])
    assert (game.pending(right), game.outcome(right)) == ((), 1.0)
    again = game.advance(state, [ask("124")])
    assert (game.pending(again), game.outcome(again)) == ((), 0.0)


def test_a_rule_of_another_task_is_refused() -> None:
    sudoku = EnvironmentInteraction(make("sudoku"))
    for name in ("outside", "shrink"):
        with pytest.raises(ValueError, match=f"the rule '{name}' is for .*, got 'sudoku'; take another"):
            Truncated(sudoku, make_rule(name))
