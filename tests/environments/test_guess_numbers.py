"""GuessNumbers: the set, feedback, prompts."""

from __future__ import annotations

from itertools import permutations

import pytest

from hf_credit.environments.guess_numbers import SUBGROUPS, GuessNumbers, alphabet, feedback, rows
from hf_credit.environments.tasks import task_seed

ROW = {"digits": 3, "symbols": 4, "secret": "231", "first_guess": "123"}


@pytest.mark.parametrize(
    ("guess", "secret", "expected"),
    [
        ("123", "123", (3, 0)),
        ("123", "231", (0, 3)),
        ("124", "123", (2, 0)),
        ("111", "123", (1, 0)),  # the other two ones have no partner left
        ("211", "123", (0, 2)),
        ("445", "123", (0, 0)),
        ("1122", "1234", (1, 1)),
    ],
)
def test_feedback_counts_each_digit_of_the_secret_once(guess, secret, expected):
    assert feedback(guess, secret) == expected


def test_the_set_is_every_pair_of_the_nine_sub_groups_once():
    every = rows()
    assert len(every) == len(set(every)) == 1908
    # By hand for (3, 4, 0, 3): 24 first guesses, each with the two derangements of its digits.
    assert sum(row[:2] == (3, 4) and feedback(row[3], row[2]) == (0, 3) for row in every) == 24 * 2
    # (4, 4, 0, 4): 24 first guesses, each with the 9 derangements of four digits.
    assert sum(row[:2] == (4, 4) for row in every) == 24 * 9
    for digits, symbols, secret, first in every:
        assert (digits, symbols, *feedback(first, secret)) in SUBGROUPS
        assert len(set(secret)) == digits
        assert set(secret + first) <= set(alphabet(symbols))


def test_1526_rows_are_for_training_and_382_are_held_out():
    game = GuessNumbers()
    parts = {}
    for split, count in (("train", 1526), ("held_out", 382)):
        tasks = [game.sample_task(task_seed(split, index)) for index in range(count + 1)]
        parts[split] = {tuple(task.values()) for task in tasks}
        assert len(parts[split]) == count
        assert tasks[count] == tasks[0]
    assert not parts["train"] & parts["held_out"]
    assert parts["train"] | parts["held_out"] == set(rows())


def test_three_digits_alone_keep_the_split():
    game = GuessNumbers(digits=3)
    held_out = {tuple(row) for row in rows()[1526:]}
    for index in range(50):
        task = game.sample_task(task_seed("held_out", index))
        assert task["digits"] == 3
        assert tuple(task.values()) in held_out


def test_the_brief_prompt_shows_only_the_first_guess_and_later_feedback():
    game = GuessNumbers(wording="brief")
    state = game.initial_state(ROW, 0)
    assert game.observe(state) == "3 digits from 1 to 4\n123 A0 B3"
    assert game.observe(game.step(state, "interact 321").state) == "A1 B2"


def test_the_papers_prompt_is_filled_in():
    game = GuessNumbers()
    text = game.observe(game.initial_state(ROW, 0))
    assert "I have a secret 3-digit number in mind, composed of digits from 1 to 4, with no repeated digits." in text
    assert text.endswith(
        "<interact>123</interact>\nThe feedback of your latest guess: 0 digits are present in the answer and in the "
        "correct positions, 3 digits are present in the answer but in the different positions.\n"
        "Now it is your turn:"
    )
    assert "231" not in text


def test_a_guess_may_repeat_digits_and_an_answer_that_does_is_wrong():
    game = GuessNumbers()
    state = game.initial_state(ROW, 0)
    assert game.step(state, "interact 222").state.queries == ("222",)
    assert game.step(state, "answer 222").state.status == "finished"
    assert game.step(state, "answer 222").reward == 0.0


@pytest.mark.parametrize("content", ["", "12", "1234", "125", "1 2 3", "12x", "१२३", "0123", "-123", "1.2.3"])
@pytest.mark.parametrize("verb", ["interact", "answer"])
def test_a_number_has_one_spelling(verb, content):
    game = GuessNumbers()
    assert game.step(game.initial_state(ROW, 0), f"<{verb}>{content}</{verb}>").state.status == "invalid"


def test_every_number_is_a_legal_guess_and_a_legal_answer():
    game = GuessNumbers()
    legal = game.legal_actions(game.initial_state(ROW, 0))
    assert len(legal) == 2 * 4**3
    assert (legal[0], legal[-1]) == ("interact 111", "answer 444")


def test_ar_bench_has_four_of_ten_digits_and_no_first_guess():
    game = GuessNumbers(source="ar_bench", wording="brief")
    task = game.sample_task(3)
    state = game.initial_state(task, 3)
    assert (task["digits"], task["symbols"], task["first_guess"]) == (4, 10, "")
    assert len(set(task["secret"])) == 4
    assert game.observe(state) == "4 digits from 0 to 9"
    assert game.step(state, f"answer {task['secret']}").reward == 1.0
    assert {game.sample_task(seed)["secret"] for seed in range(2000)} <= set(
        map("".join, permutations("0123456789", 4))
    )


def test_a_random_number_may_have_fewer_digits_and_symbols():
    game = GuessNumbers(source="ar_bench", digits=2, symbols=3, wording="brief")
    tasks = [game.sample_task(seed) for seed in range(200)]
    assert {task["secret"] for task in tasks} == {"12", "13", "21", "23", "31", "32"}
    state = game.initial_state(tasks[0], 0)
    assert game.observe(state) == "2 digits from 1 to 3"
    assert len(game.legal_actions(state)) == 2 * 3**2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"secret": "221"}, "a secret must be 3 different digits out of 1234, got '221'; correct it."),
        ({"secret": "251"}, "a secret must be 3 different digits out of 1234, got '251'; correct it."),
        ({"secret": 231}, "a secret must be 3 different digits out of 1234, got 231; correct it."),
        ({"first_guess": "12"}, "a first guess must be 3 digits out of 1234, got '12'; correct it."),
        ({"symbols": 11}, "symbols must be a whole number from 2 to 10, got 11; correct it."),
        ({"digits": 5}, "digits must be a whole number from 1 to 4, got 5; correct it."),
        (
            {"first_guess": "214"},
            "digits, symbols and the feedback on the first guess must be one of the paper's sub-groups, "
            "got (3, 4, 1, 1) for the guess '214' of '231'; take a row of sample_task, or source='ar_bench'.",
        ),
        (
            {"first_guess": "231"},
            "digits, symbols and the feedback on the first guess must be one of the paper's sub-groups, "
            "got (3, 4, 3, 0) for the guess '231' of '231'; take a row of sample_task, or source='ar_bench'.",
        ),
    ],
)
def test_an_invalid_row_is_refused(change, message):
    game = GuessNumbers()
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        game.initial_state({**ROW, **change}, 0)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"digits": 5},
            "digits must be 3 or 4 in the paper's set, and symbols left out, got 5 and None; leave both out for all "
            "tasks, or take source='ar_bench'.",
        ),
        (
            {"symbols": 4},
            "digits must be 3 or 4 in the paper's set, and symbols left out, got None and 4; leave both out for all "
            "tasks, or take source='ar_bench'.",
        ),
        (
            {"digits": 3, "symbols": 2, "source": "ar_bench"},
            "digits must be a whole number from 1 to 2, got 3; correct it.",
        ),
        (
            {"digits": 6, "symbols": 10, "source": "ar_bench"},
            "digits must be a whole number from 1 to 5, got 6; correct it.",
        ),
    ],
)
def test_a_bad_option_is_refused(options, message):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        GuessNumbers(**options)
    assert str(refusal.value) == message
