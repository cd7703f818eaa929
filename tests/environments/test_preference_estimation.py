"""PreferenceEstimation: comparisons, guesses, answers."""

from __future__ import annotations

import pytest

from hf_credit.environments.preference_estimation import (
    PreferenceEstimation,
    decimals,
    preference,
    read_decimals,
    utility,
)
from hf_credit.environments.tasks import task_seed

ROW = {
    "levels": 10,
    "weights": [3, 10, 0],
    "names": ["Movie1", "Movie2", "Up over 9", "Up"],
    "scores": [[10, 0, 5], [0, 3, 5], [1, 1, 1], [10, 10, 10]],
}
GAME = PreferenceEstimation(attributes=3, movies=4)
START = GAME.initial_state(ROW, 0)


def ask(first, second, guess="0.5,1,0"):
    return f"<interact>\nGuess: {guess}\nQuestion: Would you prefer {first} over {second}?\n</interact>"


@pytest.mark.parametrize(
    ("first", "second", "reply"),
    [
        ("Movie1", "Movie2", "Equal"),  # 0.3 * 1.0 and 1.0 * 0.3, which floats would also have to get right
        ("Up", "Movie1", "Yes"),
        ("Movie1", "Up", "No"),
        ("Up over 9", "Up", "No"),
        ("Up", "Up over 9", "Yes"),
        ("Up", "Up", "Equal"),
    ],
)
def test_a_question_is_answered_by_utility(first, second, reply):
    assert GAME.observe(GAME.step(START, ask(first, second)).state) == reply


def test_utilities_are_compared_exactly():
    assert 0.1 * 0.1 + 0.1 * 0.2 != 0.1 * 0.3
    assert preference((1, 1, 1), (1, 2, 0), (0, 0, 3)) == 0
    assert utility((1, 1, 1), (1, 2, 0)) == 3


def test_a_query_keeps_its_guess():
    state = GAME.step(START, ask("Up", "Movie1", ".25, 1.0,0")).state
    assert state.guesses == ((250_000, 1_000_000, 0),)
    assert state.asked == ((3, 0),)


@pytest.mark.parametrize(
    "text",
    ["1,0", "1,0,0,0", "-0.5,1,0", "1.2.3,1,0", "2,1,0", "1.1,1,0", "nan,1,0", "1e-1,1,0", "w1,1,0", "", "½,1,0"],
)
def test_numbers_have_one_spelling_in_a_guess(text):
    assert read_decimals(text, 3) is None
    assert GAME.step(START, ask("Up", "Movie1", text)).state.status == "invalid"
    assert GAME.step(START, f"<answer>{text}</answer>").state.status == "invalid"


@pytest.mark.parametrize(
    "content",
    [
        "Would you prefer Up over Movie1?",
        "Guess: 1,0,0",
        "Guess: 1,0,0 Question: Would you prefer Up over Movie3?",
        "Guess: 1,0,0 Question: Would you prefer up over Movie1?",
        "Guess: 1,0,0 Question: Would you prefer Up over Movie1",
        "Question: Would you prefer Up over Movie1? Guess: 1,0,0",
    ],
)
def test_a_query_has_a_guess_and_a_question(content):
    assert GAME.step(START, f"<interact>{content}</interact>").state.status == "invalid"


def test_an_answer_is_correct_above_the_cosine_and_not_at_it():
    game = PreferenceEstimation(attributes=4, movies=2, levels=25)
    # 100 % 25 == 0; the weights (22, 11, 4, 2)/25 have the norm 1, so their cosine with the first axis is 0.88.
    row = {"levels": 25, "weights": [22, 11, 4, 2], "names": ["A", "B"], "scores": [[1, 0, 0, 0], [0, 1, 0, 0]]}
    state = game.initial_state(row, 0)
    assert game.step(state, "<answer>1,0,0,0</answer>").reward == 0.0
    assert game.step(state, "<answer>1,0.000001,0,0</answer>").reward == 1.0
    assert game.step(state, "<answer>0.88,0.44,0.16,0.08</answer>").reward == 1.0


def test_the_zero_vector_is_a_wrong_answer():
    after = GAME.step(START, "<answer>0,0,0</answer>")
    assert (after.reward, after.state.status) == (0.0, "finished")


def test_the_prompts_example_is_invalid_as_an_answer():
    assert "<answer>w1,w2,w3</answer>" in GAME.observe(START)
    assert GAME.step(START, "").reward == 0.0


def test_the_prompt_lists_scores_and_not_weights():
    text = GAME.observe(START)
    assert "Movie2: [0,0.3,0.5]\n" in text
    assert "User satisfaction = w1*attr1 + … + w3*attr3" in text
    assert GAME.observe(GAME.initial_state({**ROW, "weights": [1, 1, 1]}, 0)) == text


def test_brief_feedback_names_the_movies():
    brief = PreferenceEstimation(attributes=3, movies=4, wording="brief")
    state = brief.initial_state(ROW, 0)
    assert brief.observe(state).splitlines()[1] == "Movie2 0,0.3,0.5"
    assert brief.observe(brief.step(state, ask("Up", "Movie1")).state) == "Up Movie1 Yes"


@pytest.mark.parametrize(("vector", "levels", "text"), [((0, 1, 4), 4, "0,0.25,1"), ((3, 10, 0), 10, "0.3,1,0")])
def test_decimals_are_short(vector, levels, text):
    assert decimals(vector, levels) == text
    assert read_decimals(text, 3) == tuple(value * 10**6 // levels for value in vector)


@pytest.mark.parametrize("sampling", ["uniform", "min_max", "max"])
def test_reference_movies_are_chosen_by_utility(sampling):
    game = PreferenceEstimation(attributes=3, movies=4, sampling=sampling)
    means = []
    for seed in range(30):
        task = game.sample_task(seed)
        values = sorted(utility(task["weights"], scores) / sum(task["weights"]) for scores in task["scores"])
        means.append(values)
    lowest, second, _, highest = (sum(column) / len(means) for column in zip(*means, strict=True))
    # Worth per weight is from 0 to 10 with a mean of 5. Evenly taken movies are apart, those of one end are not.
    assert (lowest > 6) == (sampling == "max")
    assert highest > 6
    assert (second - lowest > 1) == (sampling == "uniform")


def test_a_split_repeats_after_its_official_number_of_tasks():
    assert GAME.sample_task(task_seed("train", 1)) == GAME.sample_task(task_seed("train", 701))
    assert GAME.sample_task(task_seed("held_out", 1)) == GAME.sample_task(task_seed("held_out", 301))
    assert GAME.sample_task(task_seed("train", 1)) != GAME.sample_task(task_seed("held_out", 1))


def test_levels_whose_weights_are_long_decimals_are_refused():
    with pytest.raises(ValueError, match=r"^levels must divide 100, .* got 3; take 4 or 10\.$"):
        PreferenceEstimation(levels=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [0, 0, 0]}, r"weights must not all be 0, got \[0, 0, 0\]; raise one\."),
        ({"weights": [11, 0, 0]}, "each of the weights must be a whole number from 0 to 10, got 11; correct it"),
        ({"weights": [0.5, 0, 0]}, "each of the weights must be a whole number from 0 to 10, got 0.5; correct it"),
        ({"names": ["A", "B", "A", "C"]}, r"movies must have different names, got \['A', 'B', 'A', 'C'\]; rename one"),
        ({"names": ["A", "B"]}, "there must be scores for 2 to 100 movies, got 4 for 2 names"),
        ({"names": ["A", "B", "C", "<answer>"]}, "a movie's name must be text on one line without '<' and '>', got"),
        ({"names": ["A", "B", "C", " D"]}, "a movie's name must be text on one line without '<' and '>', got ' D'"),
        ({"scores": [[1, 2]] * 4}, "scores must be 3 numbers, got 2; correct them"),
    ],
)
def test_an_invalid_row_is_refused(change, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        GAME.initial_state({**ROW, **change}, 0)


def test_a_state_of_others_without_levels_is_refused():
    game = PreferenceEstimation()
    state = game.initial_state(game.sample_task(0), 0)
    assert type(state).from_json(state.to_json()) == state
    with pytest.raises(ValueError, match=r"levels of a state .* from 2 to 100, got 0; "):
        type(state).from_json(
            state.to_json().replace('"levels":10', '"levels":0').replace('"levels": 10', '"levels": 0')
        )
