"""Hypothesis spaces against enumeration, and play by them."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments import make
from hf_credit.environments.circuit_decoding import CircuitDecoding, output
from hf_credit.environments.guess_numbers import GuessNumbers, GuessNumbersState, alphabet, feedback
from hf_credit.environments.movie_recommendation import MovieRecommendation
from hf_credit.environments.preference_estimation import PreferenceEstimation, utility
from hf_credit.environments.randomness import stream
from hf_credit.environments.situation_puzzles import SituationPuzzles
from hf_credit.environments.sudoku import SudokuState
from hf_credit.environments.tasks import task_seed
from hf_credit.oracles import default_oracle, hypotheses

PREFERENCES = {"attributes": 3, "levels": 4, "movies": 4, "wording": "brief"}
MICRO = {
    "circuit_decoding": {"inputs": 2, "candidates": 6, "fixed": True, "wording": "brief"},
    "guess_numbers": {"digits": 3, "turns": 6, "wording": "brief"},
    "movie_recommendation": {**PREFERENCES, "unseen": 3},
    "preference_estimation": PREFERENCES,
    "situation_puzzles": {"slots": 5, "values": 3, "wording": "brief"},
}
LEAST_WINS = dict(zip(sorted(MICRO), (40, 38, 30, 30, 40), strict=True))
"""Of 40 episodes; a preference can stay in the dark when no question splits what is possible any more."""


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
def test_other_values_are_not_hypotheses(nonsense):
    environment = GuessNumbers()
    assert not hypotheses.contains(environment.initial_state(environment.sample_task(0), 0), nonsense)


def test_ten_digits_with_none_in_common_leave_360_of_5040():
    state = GuessNumbersState(seed=0, left=9, digits=4, symbols=10, secret="5678", queries=("0123",))
    assert hypotheses.size(state) == 6 * 5 * 4 * 3
    assert hypotheses.size(GuessNumbersState(seed=0, left=10, digits=4, symbols=10, secret="5678")) == 5040


# CircuitDecoding


def circuits_that_agree(state):
    """Every combination of candidates that gives the same outputs, by running all of them."""
    numbers = range(1, len(state.candidates) + 1)
    told = [output(state, query) for query in state.queries]

    def outputs(hidden):
        other = replace(state, hidden=hidden)
        return [output(other, query) for query in state.queries]

    every = product(numbers, repeat=len(state.hidden))
    return [one for one in every if outputs(one) == told and not (state.distinct and len(set(one)) < len(one))]


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("circuits", [2, 3])
def test_the_circuits_left_are_those_that_enumeration_leaves(circuits, distinct):
    environment = CircuitDecoding(circuits=circuits, candidates=6, distinct=distinct)
    for seed in range({2: 6, 3: 2}[circuits]):
        for state in play(environment, seed, quality=0.3):
            left = circuits_that_agree(state)
            assert hypotheses.members(state) == left
            assert hypotheses.size(state) == len(left)
            numbers = range(8)
            every = product(numbers, repeat=circuits)
            assert [one for one in every if hypotheses.contains(state, one)] == left
            assert hypotheses.contains(state, state.hidden)


def test_a_repeated_query_takes_nothing_away_and_the_best_one_halves():
    environment = CircuitDecoding(circuits=1, candidates=4, inputs=2)
    row = {"inputs": 2, "candidates": ["x0", "not x0", "x1", "x0 and x1"], "hidden": [4]}
    state = environment.initial_state(row, 0)
    # Outputs on 00, 01, 10, 11: x0 0011, not x0 1100, x1 0101, and 0001. So 01 splits evenly, the others 3 to 1.
    oracle = default_oracle(environment)
    assert oracle.valid_actions(state) == {"interact A(0, 1)"}
    assert [oracle.score(state, f"<interact>{query}</interact>") for query in ("A(0,1)", "A01", "A10")] == [1, 1, 0]
    once = environment.step(state, "interact A(0, 1)").state
    assert hypotheses.members(once) == [(1,), (4,)]
    assert hypotheses.members(environment.step(once, "interact A(0, 1)").state) == [(1,), (4,)]
    assert not hypotheses.contains(once, [1])
    assert not hypotheses.contains(once, (1, 4))


def test_circuits_that_differ_are_counted_jointly():
    environment = CircuitDecoding(circuits=2, candidates=4, inputs=2, distinct=True)
    row = {"inputs": 2, "candidates": ["x0", "not x0", "x1", "x0 and x1"], "hidden": [4, 1]}
    state = environment.initial_state(row, 0)
    assert hypotheses.size(state) == 4 * 3
    # A is one of x0 and `x0 and x1`, B of all four: 2 * 4 pairs less the two that repeat.
    assert hypotheses.size(environment.step(state, "interact A01").state) == 6


# PreferenceEstimation and MovieRecommendation


def weights_that_agree(state):
    def answers(weights):
        values = [utility(weights, scores) for scores in state.scores]
        return [(values[first] > values[second]) - (values[first] < values[second]) for first, second in state.asked]

    every = product(range(state.levels + 1), repeat=len(state.weights))
    return [one for one in every if any(one) and answers(one) == answers(state.weights)]


@pytest.mark.parametrize("game", [PreferenceEstimation, MovieRecommendation])
def test_the_weights_left_are_those_that_enumeration_leaves(game):
    environment = game(attributes=3, levels=4, movies=4)
    for seed in range(6):
        states = play(environment, seed, quality=0.5)
        assert hypotheses.size(states[0]) == 124
        for state in states:
            left = weights_that_agree(state)
            assert hypotheses.members(state) == left
            assert hypotheses.size(state) == len(left)
            every = product(range(-1, 6), repeat=3)
            assert [one for one in every if hypotheses.contains(state, one)] == left
            assert hypotheses.contains(state, state.weights)


def test_eight_weights_in_tenths_are_tested_but_not_listed():
    environment = PreferenceEstimation()
    state = play(environment, 0)[-2]
    assert hypotheses.contains(state, state.weights)
    assert not hypotheses.contains(state, tuple(10 - weight for weight in state.weights))
    with pytest.raises(ValueError, match=r"must have at most 200000 hypotheses, got 11 \*\* 8; use fewer"):
        hypotheses.size(state)


def test_a_question_is_as_good_with_another_guess_and_in_the_other_order():
    environment = PreferenceEstimation(attributes=2, levels=2, movies=3)
    # C is worth 0 to everybody, so that asking about it splits less.
    row = {"levels": 2, "weights": [2, 1], "names": ["A", "B", "C"], "scores": [[2, 0], [0, 2], [0, 0]]}
    state = environment.initial_state(row, 0)
    oracle = default_oracle(environment)
    assert oracle.valid_actions(state) == {"interact Guess: 0.5,0.5 Question: Would you prefer A over B?"}
    asked = "<interact>Guess: {} Question: Would you prefer {} over {}?</interact>"
    for guess, first, second in (
        ("0.5,0.5", "A", "B"),
        ("1,0", "A", "B"),
        ("0.5,0.5", "B", "A"),
        ("0.50,.5", "B", "A"),
    ):
        assert oracle.score(state, asked.format(guess, first, second)) == 1.0
    for guess, first, second in (("0.5,0.5", "A", "C"), ("0.5", "A", "B"), ("0.5,0.5", "A", "D")):
        assert oracle.score(state, asked.format(guess, first, second)) == 0.0


def test_an_answer_is_as_good_in_another_spelling_or_if_right_for_as_many_weights():
    environment = PreferenceEstimation(attributes=2, levels=2, movies=2, turns=2)
    row = {"levels": 2, "weights": [2, 1], "names": ["A", "B"], "scores": [[2, 0], [0, 2]]}
    state = environment.step(
        environment.initial_state(row, 0), "interact Guess: 1,1 Question: Would you prefer A over B?"
    )
    # (1, 0), (2, 0) and (2, 1) are left. The cosines of their mean (2, 0) are 1, 1 and 0.894.
    oracle = default_oracle(environment)
    assert oracle.valid_actions(state.state) == {"answer 1,0"}
    given = {
        text: oracle.score(state.state, f"<answer>{text}</answer>")
        for text in ("1,0", "1.0,0", "0.8,.1", "1,1", "0,0")
    }
    assert given == {"1,0": 1.0, "1.0,0": 1.0, "0.8,.1": 1.0, "1,1": 0.0, "0,0": 0.0}


def test_play_by_drawn_weights_mostly_wins():
    environment = PreferenceEstimation()
    assert sum(environment.outcome(play(environment, seed)[-1]) for seed in range(10)) >= 8


def test_a_recommendation_waits_for_the_last_reply():
    environment = MovieRecommendation(turns=3)
    oracle = default_oracle(environment)
    for state in play(environment, 1):
        verbs = {action.split(" ")[0] for action in oracle.valid_actions(state)}
        assert verbs == {"answer" if state.left == 1 else "interact"} or state.status == "finished"


# SituationPuzzles


def test_the_stories_left_are_those_that_the_judge_leaves():
    environment = SituationPuzzles(slots=2, values=3)
    row = environment.sample_task(0)
    row = {**row, "bottom": "nurse harbour", "verdicts": ["No", "Yes", "No", "Yes", "No", "No"]}
    state = environment.initial_state(row, 0)
    assert hypotheses.size(state) == 9
    state = environment.step(state, "interact Was it the sailor?").state
    assert hypotheses.size(state) == 6
    state = environment.step(state, "interact Was it cold?").state
    assert hypotheses.size(state) == 6
    # Two words left of who, three of where: the former is asked about.
    oracle = default_oracle(environment)
    assert oracle.valid_actions(state) == {"interact Was it the nurse?", "interact Was it the baker?"}
    assert oracle.score(state, "<interact>was it the  NURSE?</interact>") == 1.0
    assert oracle.score(state, "<interact>Was it the nurse</interact>") == 0.0
    state = environment.step(state, "interact DID it happen at the  harbour?").state
    assert hypotheses.members(state) == [("nurse", "harbour"), ("baker", "harbour")]
    assert hypotheses.contains(state, ("baker", "harbour"))
    assert not hypotheses.contains(state, ("sailor", "harbour"))


def test_stories_of_a_file_have_no_known_parts():
    environment = SituationPuzzles()
    row = {"surface": "Why?", "bottom": "Because.", "questions": [], "verdicts": [], "slots": []}
    state = environment.initial_state(row, 0)
    with pytest.raises(ValueError, match="hypotheses are known for generated stories, got one without slots; use"):
        hypotheses.members(state)


# Play


@pytest.mark.parametrize("name", sorted(MICRO))
def test_play_by_the_hypotheses_mostly_wins(name):
    environment = make(name, **MICRO[name])
    ends = [play(environment, task_seed("held_out", index))[-1] for index in range(40)]
    assert all(end.status == "finished" and end.answer is not None for end in ends)
    assert sum(environment.outcome(end) for end in ends) >= LEAST_WINS[name]


def test_an_answer_is_given_once_it_is_determined_or_at_the_last_reply():
    environment = GuessNumbers()
    row = {"digits": 3, "symbols": 4, "secret": "231", "first_guess": "123"}
    oracle, state = default_oracle(environment), environment.initial_state(row, 0)
    assert oracle.valid_actions(state) == {"interact 231", "interact 312"}
    assert oracle.valid_actions(environment.force_answer(state)) == {"answer 231", "answer 312"}
    assert oracle.valid_actions(environment.step(state, "interact 312").state) == {"answer 231"}
    assert oracle.score(state, "<interact>231</interact>") == 1.0
    assert oracle.score(state, "<answer>231</answer>") == 0.0
    assert oracle.valid_actions(environment.step(state, "answer 231").state) == frozenset()


def test_states_of_other_games_are_refused():
    with pytest.raises(ValueError, match=r"hypotheses are known for states of the types .*, got a SudokuState; use"):
        hypotheses.size(SudokuState(seed=0, givens="", cells=""))
