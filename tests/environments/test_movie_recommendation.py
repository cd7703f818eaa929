"""MovieRecommendation: the last turn and its answer."""

from __future__ import annotations

import pytest

from hf_credit.environments.movie_recommendation import MovieRecommendation
from hf_credit.environments.preference_estimation import utility

ROW = {
    "levels": 10,
    "weights": [3, 10],
    "names": ["Movie1", "Movie2"],
    "scores": [[10, 0], [0, 3]],
    "unseen_names": ["Film1", "Film2", "Film3"],
    "unseen_scores": [[10, 1], [0, 5], [0, 4]],  # worth 40, 50 and 40
}
GAME = MovieRecommendation(attributes=2, movies=2, unseen=3, turns=3)
START = GAME.initial_state(ROW, 0)
ASK = "<interact>Guess: 0.5,1 Question: Would you prefer Movie1 over Movie2?</interact>"


def last(game=GAME):
    state = game.initial_state(ROW, 0)
    while state.left > 1:
        state = game.step(state, ASK).state
    return state


def test_unseen_movies_are_shown_only_at_the_last_turn():
    first, second, third = START, GAME.step(START, ASK).state, last()
    assert "Film" not in GAME.observe(first) + GAME.observe(second)
    assert GAME.observe(third).startswith("Equal\nFinal Turn: ")
    assert "Film1: [1,0.1]\nFilm2: [0,0.5]\nFilm3: [0,0.4]\n" in GAME.observe(third)
    brief = MovieRecommendation(attributes=2, movies=2, unseen=3, turns=3, wording="brief")
    assert brief.observe(last(brief)) == "Movie1 Movie2 Equal\nRecommend:\nFilm1 1,0.1\nFilm2 0,0.5\nFilm3 0,0.4"


def test_with_one_turn_the_first_is_the_last():
    game = MovieRecommendation(attributes=2, movies=2, unseen=3, turns=1)
    assert "Film2: [0,0.5]" in game.observe(game.initial_state(ROW, 0))


def test_the_best_movie_must_be_named_exactly():
    for reply, reward, status in (
        ("<answer>Film2</answer>", 1.0, "finished"),
        ("<answer>Film1</answer>", 0.0, "finished"),
        ("<answer>film2</answer>", 0.0, "invalid"),
        ("<answer>Movie1</answer>", 0.0, "invalid"),
        ("<answer>Movie_A</answer>", 0.0, "invalid"),  # the example of the prompt
        (ASK, 0.0, "finished"),
    ):
        after = GAME.step(last(), reply)
        assert (after.reward, after.state.status) == (reward, status)


def test_an_early_answer_is_invalid_unless_forced():
    assert GAME.step(START, "<answer>Film2</answer>").state.status == "invalid"
    force_answer = GAME.force_answer(START)
    assert "Film2: [0,0.5]" in GAME.answer_prompt(force_answer)
    assert GAME.step(force_answer, "<answer>Film2</answer>").reward == 1.0


def test_random_tasks_have_one_best_movie_and_new_names():
    game = MovieRecommendation(attributes=3, levels=2, movies=4, unseen=3)
    for seed in range(60):
        task = game.sample_task(seed)
        values = sorted(utility(task["weights"], scores) for scores in task["unseen_scores"])
        assert values[-1] > values[-2]
        assert not {*task["names"]} & {*task["unseen_names"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"unseen_scores": [[10, 1], [0, 4], [0, 4]]},
            "one unseen movie must have a higher utility than the others, got a tie",
        ),
        (
            {"unseen_names": ["Film1", "Movie2", "Film3"]},
            r"movies must have different names, got \['Movie2'\] seen and",
        ),
        ({"unseen_names": ["Film1", "Film1", "Film3"]}, "movies must have different names, got"),
        ({"weights": [0, 0]}, "weights must not all be 0"),
    ],
)
def test_an_invalid_row_is_refused(change, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        GAME.initial_state({**ROW, **change}, 0)
