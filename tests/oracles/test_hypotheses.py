"""Hypothesis spaces against enumeration, and play by them."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments.guess_numbers import GuessNumbers, GuessNumbersState, alphabet, feedback
from hf_credit.environments.randomness import stream
from hf_credit.environments.sudoku import SudokuState
from hf_credit.environments.tasks import task_seed
from hf_credit.oracles import default_oracle, hypotheses

MICRO = {"guess_numbers": {"digits": 3, "turns": 6, "wording": "brief"}}


def play(environment, seed, quality=1.0):
    """The states of an episode in which the oracle is followed with a probability of `quality`."""
    oracle, draws = default_oracle(environment), stream(seed, "hypotheses")
    state = environment.initial_state(environment.sample_task(seed), seed)
    states = [state]
    while state.status == "active":
        good = sorted(oracle.valid_actions(state))
        legal = [action for action in environment.legal_actions(state) if action.startswith("interact")] or good
        state = environment.step(state, draws.choice(good if draws.random() < quality else legal)).state
        states.append(state)
    return states


# GuessNumbers


def numbers_that_agree(state):
    guesses = [guess for guess in (state.first_guess, *state.queries) if guess]
    return [
        number
        for number in map("".join, permutations(alphabet(state.symbols), state.digits))
        if all(feedback(guess, number) == feedback(guess, state.secret) for guess in guesses)
    ]


@given(st.integers(0, 2**32 - 1), st.lists(st.text(alphabet="12345", min_size=3, max_size=4), max_size=4))
def test_the_numbers_left_are_those_that_enumeration_leaves(seed, guesses):
    environment = GuessNumbers()
    state = environment.initial_state(environment.sample_task(seed), seed)
    for guess in guesses:
        after = environment.step(state, f"interact {guess}").state
        state = after if after.status == "active" else state
    left = numbers_that_agree(state)
    assert hypotheses.members(state) == left
    assert hypotheses.size(state) == len(left)
    every = map("".join, permutations(alphabet(state.symbols), state.digits))
    assert [number for number in every if hypotheses.contains(state, number)] == left
    assert hypotheses.contains(state, state.secret)


def test_the_first_guess_is_evidence_and_a_guess_is_judged_before_its_own_feedback():
    environment = GuessNumbers()
    row = {"digits": 3, "symbols": 4, "secret": "231", "first_guess": "123"}
    state = environment.initial_state(row, 0)
    assert hypotheses.members(state) == ["231", "312"]  # both derangements of 123, and not 123 itself
    assert hypotheses.contains(state, "312")
    assert not hypotheses.contains(environment.step(state, "interact 312").state, "312")


@pytest.mark.parametrize("nonsense", ["", "12", "224", "999", "abc", None, 231, ("2", "3", "1")])
def test_what_is_no_hypothesis_is_not_contained(nonsense):
    environment = GuessNumbers()
    assert not hypotheses.contains(environment.initial_state(environment.sample_task(0), 0), nonsense)


def test_ten_digits_with_none_in_common_leave_360_of_5040():
    state = GuessNumbersState(seed=0, left=9, digits=4, symbols=10, secret="5678", queries=("0123",))
    assert hypotheses.size(state) == 6 * 5 * 4 * 3
    assert hypotheses.size(GuessNumbersState(seed=0, left=10, digits=4, symbols=10, secret="5678")) == 5040


# Play


@pytest.mark.parametrize("name", sorted(MICRO))
def test_who_plays_by_the_hypotheses_mostly_wins(name):
    from hf_credit.environments import make

    environment = make(name, **MICRO[name])
    ends = [play(environment, task_seed("held_out", index))[-1] for index in range(40)]
    assert all(end.status == "finished" and end.answer is not None for end in ends)
    assert sum(environment.outcome(end) for end in ends) >= 36


def test_an_answer_is_given_once_it_is_determined_or_at_the_last_reply():
    environment = GuessNumbers()
    row = {"digits": 3, "symbols": 4, "secret": "231", "first_guess": "123"}
    oracle, state = default_oracle(environment), environment.initial_state(row, 0)
    assert oracle.valid_actions(state) == {"interact 231", "interact 312"}
    assert oracle.valid_actions(environment.hurried(state)) == {"answer 231", "answer 312"}
    assert oracle.valid_actions(environment.step(state, "interact 312").state) == {"answer 231"}
    assert oracle.score(state, "<interact>231</interact>") == 1.0
    assert oracle.score(state, "<answer>231</answer>") == 0.0
    assert oracle.valid_actions(environment.step(state, "answer 231").state) == frozenset()


def test_states_of_other_games_are_refused():
    with pytest.raises(ValueError, match=r"hypotheses are known of states of the types .*, got a SudokuState; take"):
        hypotheses.size(SudokuState(seed=0, givens="", cells=""))
