"""The rows of the paper's authors as tasks."""

from __future__ import annotations

import numpy as np
import pytest

from hf_credit.environments import make
from hf_credit.environments.t3_rows import circuit_task, preference_task, recommendation_task

CIRCUITS = {
    "controller": {
        "circuits": np.array(["(x0 and x1)", "not (x2)"], dtype=object),
        "num_inputs": 3,
        "candidates": np.array(["x0", "not x2", "x1 and x0"], dtype=object),
    },
    "answer": {"target": "0000001110101010"},
}
MOVIES = {
    "controller": {
        "user_preference_function": np.array([0.1, 0.3]),
        "seen_movies_names": np.array(["A", "B"], dtype=object),
        "seen_movies_attribute_scores": [np.array([0.7, 1.0]), np.array([0.0, 0.2])],
        "unseen_movies_names": ["C", "D"],
        "unseen_movies_attribute_scores": [[0.25, 0.5], [1, 1]],
    }
}


def test_circuits_are_found_among_the_candidates_by_their_tables():
    task = circuit_task(CIRCUITS)
    assert task == {"inputs": 3, "candidates": ["x0", "not x2", "x1 and x0"], "hidden": [3, 2]}
    game = make("circuit_decoding")
    assert game.step(game.initial_state(task, 0), "answer 3, 2").reward == 1.0


def test_movies_are_scored_in_tenths_if_possible():
    task = preference_task(MOVIES)
    assert task == {"levels": 10, "weights": [1, 3], "names": ["A", "B"], "scores": [[7, 10], [0, 2]]}
    game = make("preference_estimation")
    assert game.step(game.initial_state(task, 0), "answer 0.1,0.3").reward == 1.0


def test_one_score_with_two_decimals_makes_all_hundredths():
    task = recommendation_task(MOVIES)
    assert (task["levels"], task["weights"], task["scores"]) == (100, [10, 30], [[70, 100], [0, 20]])
    assert task["unseen_scores"] == [[25, 50], [100, 100]]
    assert make("movie_recommendation").initial_state(task, 0).unseen_names == ("C", "D")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"circuits": ["x1"]}, "a circuit must equal one of the candidates, got 'x1'; leave the row out."),
        ({"circuits": ["exit()"]}, "a formula must be of x0, x1, .* got 'exit"),
        ({"num_inputs": 30}, "num_inputs must be a whole number from 1 to 4, got 30; correct it."),
    ],
)
def test_a_row_of_circuits_that_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        circuit_task({"controller": {**CIRCUITS["controller"], **change}})


@pytest.mark.parametrize("values", [[0.123, 0.3], [-0.1, 0.3], [1.2, 0.3], ["a", 0.3], [float("nan"), 0.3]])
def test_numbers_out_of_range_are_refused(values):
    with pytest.raises(ValueError, match=r"^numbers must be in \[0, 1\] with at most two decimals, got "):
        preference_task({"controller": {**MOVIES["controller"], "user_preference_function": values}})


def test_a_row_without_its_columns_is_refused():
    with pytest.raises(
        ValueError, match="a row's controller must have circuits, candidates, num_inputs, got it without"
    ):
        circuit_task({"controller": {"circuits": []}})
    with pytest.raises(ValueError, match="a row's controller must have unseen_movies_names, "):
        recommendation_task({})
