"""Truncation rules about hypotheses, in games small enough to count them by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hf_credit import make
from hf_credit.methods.t3 import Truncated, make_rule
from hf_credit.rollouts import EnvironmentInteraction


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


def test_a_guess_that_is_ruled_out_stalls_although_it_may_leave_fewer_hypotheses() -> None:
    # 143 is possible and leaves 124 and 423; 412 is not, and yet it tells the three apart.
    assert walk(guessing("outside"), GUESSES, ask("143")).progress == (1.0,)
    assert walk(guessing("outside"), GUESSES, ask("412")).cut == 1
    assert walk(guessing("shrink"), GUESSES, ask("143"), ask("124")).progress == (1.0, 1.0)
    assert walk(guessing("shrink"), GUESSES, ask("412")).progress == (2.0,)


def test_a_repeated_possible_guess_does_not_stall_and_leaves_as_many_hypotheses() -> None:
    again = (ask("143"), ask("124"), ask("124"))
    assert walk(guessing("outside"), GUESSES, *again).cut is None
    assert walk(guessing("shrink", window=1), GUESSES, *again).cut == 3


def test_the_first_guess_counts_and_the_feedback_of_the_guess_itself_does_not() -> None:
    assert walk(guessing("outside"), GUESSES, ask("123")).cut == 1  # it was answered before the first turn
    assert walk(guessing("outside"), GUESSES, ask("143")).cut is None  # ruled out only by its own feedback


def test_stalls_in_total_or_consecutive() -> None:
    asked = (ask("123"), ask("143"), ask("123"))
    assert walk(guessing("shrink", window=2), GUESSES, *asked).cut is None
    assert walk(guessing("shrink", window=2, consecutive=False), GUESSES, *asked).cut == 3


def test_a_soft_cut_requests_the_number() -> None:
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
    for name in ("outside", "shrink", "unknown", "similarity", "movement"):
        with pytest.raises(ValueError, match=f"the rule '{name}' is for .*, got 'sudoku'; use another"):
            Truncated(sudoku, make_rule(name))


# Circuits


def test_a_query_with_a_known_answer_rules_out_no_hypothesis() -> None:
    environment = make("circuit_decoding")
    game = Truncated(EnvironmentInteraction(environment), make_rule("shrink"))
    task = environment.sample_task(1)
    query = environment.write_action(environment.legal_actions(environment.initial_state(task, 1))[0])
    state = walk(game, task, *[query] * 4)
    assert state.progress[0] > 0
    assert (state.progress[1:], state.cut) == ((0.0, 0.0, 0.0), 4)


# Preferences: of two attributes the user cares for the first alone


PREFERENCES = {"levels": 4, "weights": [4, 0], "names": ["A", "B"], "scores": [[4, 0], [0, 4]]}


def guess(weights: str) -> str:
    return f"<interact>Guess: {weights} Question: Would you prefer A over B?</interact>"


def preferring(rule: str, **options: Any) -> Truncated[Any]:
    world = make("preference_estimation", attributes=2, movies=2, levels=4, turns=8)
    return Truncated(EnvironmentInteraction(world), make_rule(rule, **options))


def test_similarity_falls_strictly_and_exactly() -> None:
    nearer, as_near, farther = guess("1,0.5"), guess("0.5,0.25"), guess("0.9,0.9")
    state = walk(preferring("similarity"), PREFERENCES, as_near, nearer, farther, guess("0,1"))
    assert (state.progress, state.cut) == ((None, 0.0, -1.0, -1.0), 4)
    ties = walk(preferring("similarity"), PREFERENCES, *[guess("0.3,0.1")] * 5)
    assert (ties.progress[1:], ties.cut) == ((0.0,) * 4, None)
    assert walk(preferring("similarity", min_progress=1.0), PREFERENCES, *[guess("0.3,0.1")] * 3).cut == 3


def test_a_guess_of_zeros_has_no_similarity() -> None:
    state = walk(preferring("similarity", window=1), PREFERENCES, guess("1,1"), guess("0,0"), guess("0,1"))
    assert state.progress == (None, None, None)


def test_movement_is_the_mean_step_of_the_guess_over_four() -> None:
    walked = [guess(weights) for weights in ("0,0", "0,0.5", "0,0.75", "0,1", "0.25,1", "0.25,1")]
    state = walk(preferring("movement"), PREFERENCES, *walked)
    # .5 + .25 + .25 + .25 over 4 is .3125; then .25 + .25 + .25 + 0 over 4
    assert (state.progress, state.cut) == ((None,) * 4 + (0.3125, 0.1875), 6)


def test_recommending_stalls_by_the_same_rule_and_a_soft_cut_shows_the_list() -> None:
    world = make("movie_recommendation", attributes=2, movies=2, levels=4, unseen=2, turns=6)
    task = {**PREFERENCES, "unseen_names": ["X", "Y"], "unseen_scores": [[4, 0], [0, 4]]}
    game = Truncated(EnvironmentInteraction(world), make_rule("similarity"), "soft")
    state = walk(game, task, guess("1,0"), guess("1,1"), guess("0,1"))
    (request,) = game.pending(state)
    assert "Y: [0,1]" in request.messages[-1]["content"]
    assert game.outcome(game.advance(state, ["<answer>X</answer>"])) == 1.0


# Puzzles


STORY = {
    "surface": "What happened?",
    "bottom": "nurse",
    "questions": ["nurse?", "pilot?"],
    "verdicts": ["Yes", "No"],
    "slots": [["nurse", "pilot"]],
}


def letters(texts: Sequence[str]) -> list[list[float]]:
    """An embedder: the counts of letters."""
    return [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


def puzzling(rule: str, **options: Any) -> Truncated[Any]:
    return Truncated(EnvironmentInteraction(make("situation_puzzles", slots=1, values=2)), make_rule(rule, **options))


def test_questions_without_an_answer_stall() -> None:
    asked = (ask("Cold?"), ask("nurse?"), ask("Cold?"), ask("Warm?"))
    assert walk(puzzling("unknown", window=2), STORY, *asked).cut == 4
    assert walk(puzzling("unknown", window=2), STORY, *asked).progress == (0.0, 1.0, 0.0, 0.0)
    assert make_rule("unknown").window == 5


def test_a_question_similar_to_an_earlier_one_stalls() -> None:
    rule = {"embedder": f"{__name__}:letters"}
    asked = (ask("Is it cold?"), ask("Who?"), ask("Was there a pilot?"), ask("is it Cold?"))
    assert walk(puzzling("similar_question", **rule), STORY, *asked).cut == 4
    assert walk(puzzling("similar_question", **rule), STORY, *asked[:3], ask("nurse?")).cut is None
    assert walk(puzzling("similar_question", alpha=1.0, **rule), STORY, *asked).cut is None
