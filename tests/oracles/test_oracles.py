"""The default oracle of each environment, and refused objects."""

from __future__ import annotations

import math

import pytest

from hf_credit.environments import ENVIRONMENTS, make
from hf_credit.oracles import default_oracle, require_fit
from hf_credit.oracles.hypotheses import HypothesesOracle
from hf_credit.oracles.mcts import MCTSOracle
from hf_credit.oracles.minesweeper_posterior import MinesweeperPosteriorOracle
from hf_credit.oracles.sokoban_search import SokobanSearchOracle
from hf_credit.oracles.sudoku_constraints import SudokuConstraintsOracle
from hf_credit.rollouts import Verdict

SUDOKU = make("sudoku", size=4, blanks=4)


class Judge:
    """An oracle of someone else's."""

    def __init__(self, score):
        self._score = score

    def valid_actions(self, state):
        return frozenset()

    def score(self, state, action):
        return self._score(state, action)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("circuit_decoding", HypothesesOracle),
        ("guess_numbers", HypothesesOracle),
        ("movie_recommendation", HypothesesOracle),
        ("preference_estimation", HypothesesOracle),
        ("situation_puzzles", HypothesesOracle),
        ("minesweeper", MinesweeperPosteriorOracle),
        ("sokoban", SokobanSearchOracle),
        ("sudoku", SudokuConstraintsOracle),
        ("tic_tac_toe", MCTSOracle),
    ],
)
def test_each_environment_has_an_oracle_that_fits_it(name, kind):
    environment = make(name)
    oracle = default_oracle(environment)
    assert type(oracle) is kind
    require_fit(oracle, environment)


def test_every_environment_has_an_oracle_of_its_own():
    assert all(default_oracle(make(name)) is not None for name in ENVIRONMENTS)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_valid_actions_are_those_whose_verdict_is_valid(name):
    environment = make(name)
    oracle, state = default_oracle(environment), environment.initial_state(environment.sample_task(0), 0)
    accepted = oracle.valid_actions(state)
    for action in [*list(environment.legal_actions(state))[:12], *sorted(accepted)[:4]]:
        valid = Verdict(score=oracle.score(state, action)).valid
        # Of questions about movies the guess does not count, of which valid actions have one.
        assert valid == (action in accepted) or (valid and name in ("movie_recommendation", "preference_estimation"))


def test_an_environment_of_someone_elses_has_none():
    class Other(type(SUDOKU)):
        name = "other"

    assert default_oracle(Other()) is None


@pytest.mark.parametrize("score", [0, 1, 0.5, True])
def test_an_oracle_of_someone_elses_fits_if_it_scores(score):
    require_fit(Judge(lambda state, action: score), SUDOKU)


def test_an_oracle_fits_environments_derived_from_its_own():
    class Other(type(SUDOKU)):
        name = "other"

    require_fit(SudokuConstraintsOracle(), Other())


def test_an_oracle_is_tested_on_a_legal_action_of_a_first_state():
    def score(state, action):
        assert state.status == "active"
        assert action in SUDOKU.legal_actions(state)
        return 1.0

    require_fit(Judge(score), SUDOKU)


@pytest.mark.parametrize("oracle", [None, "mcts", 3, object()])
def test_an_object_without_the_methods_of_an_oracle_is_refused(oracle):
    with pytest.raises(ValueError, match=r"an oracle must be a hf_credit.oracles.Oracle, got .*; give"):
        require_fit(oracle, SUDOKU)


def test_an_oracle_for_another_environment_is_refused():
    with pytest.raises(
        ValueError,
        match=r"made for the environment 'minesweeper', got 'sudoku_constraints' for Sudoku; choose another",
    ):
        require_fit(SudokuConstraintsOracle(), make("minesweeper"))


def test_an_oracle_that_fails_is_refused_with_its_reason():
    def fail(state, action):
        raise KeyError("no such cell")

    with pytest.raises(ValueError, match=r"got KeyError from 'Judge' on 'fill . . 1' \('no such cell'\); ") as refusal:
        require_fit(Judge(fail), SUDOKU)
    assert isinstance(refusal.value.__cause__, KeyError)


@pytest.mark.parametrize("score", [2.0, -1, math.nan, math.inf])
def test_a_score_out_of_range_is_refused(score):
    with pytest.raises(ValueError, match=r"score must be in \[0, 1\], got .* from 'Judge' on 'fill . . 1'; scale it"):
        require_fit(Judge(lambda state, action: score), SUDOKU)


@pytest.mark.parametrize("score", [None, "one"])
def test_a_score_that_is_not_a_number_is_refused(score):
    with pytest.raises(ValueError, match=r"must score every legal action of 'sudoku', got (Type|Value)Error from"):
        require_fit(Judge(lambda state, action: score), SUDOKU)
