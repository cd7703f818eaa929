"""Verdicts of Sokoban on positions whose answer can be checked by eye."""

from __future__ import annotations

import pytest

from hf_credit import make, oracles
from hf_credit.environments.sokoban import MOVES, Sokoban
from hf_credit.oracles.sokoban_search import SokobanSearchOracle
from hf_credit.rollouts import Verdict


def start(*board, boxes=1):
    environment = Sokoban(rows=len(board), columns=len(board[0]), boxes=boxes, longest=20)
    return environment.initial_state({"board": list(board)}, seed=0)


def test_only_moves_on_a_shortest_solution_are_valid():
    straight = start("#######", "#-----#", "#@$-.-#", "#-----#", "#######")
    assert SokobanSearchOracle().valid_actions(straight) == {"right"}
    # The box must go up, so the player goes round it, on either side.
    round_it = start("#######", "#--.--#", "#--@--#", "#--$--#", "#-----#", "#######")
    assert SokobanSearchOracle().valid_actions(round_it) == {"left", "right"}


def test_a_move_scores_by_what_is_left_after_it():
    state = start("#######", "#--.--#", "#--@--#", "#--$--#", "#-----#", "#######")
    scores = {
        action: [SokobanSearchOracle(solvable).score(state, action) for solvable in (0.0, 0.5)]
        for action in ("left", "<action>up</action>", "down", "stay")
    }
    # Down pushes the box to the lower wall, from which it never comes back; up is a detour.
    assert scores == {"left": [1.0, 1.0], "<action>up</action>": [0.0, 0.5], "down": [0.0, 0.0], "stay": [0.0, 0.0]}
    assert SokobanSearchOracle(solvable=1.0).valid_actions(state) == {"up", "left", "right"}


@pytest.mark.parametrize("solvable", [0.0, 0.5, 0.75, 1.0])
def test_valid_moves_are_those_whose_verdict_is_valid(solvable):
    state = start("#######", "#--.--#", "#--@--#", "#--$--#", "#-----#", "#######")
    oracle = SokobanSearchOracle(solvable)
    accepted = {move for move in MOVES if Verdict(score=oracle.score(state, move)).valid}
    assert oracle.valid_actions(state) == accepted


def test_nothing_is_valid_after_the_end():
    environment, state = make("sokoban", boxes=1), None
    state = environment.step(environment.initial_state(environment.sample_task(0), 0), "no move").state
    assert SokobanSearchOracle().valid_actions(state) == frozenset()
    assert SokobanSearchOracle(solvable=0.5).score(state, "up") == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_valid_moves_solve_a_task_in_the_least_number_of_moves(seed):
    environment, oracle = make("sokoban"), SokobanSearchOracle()
    first = state = environment.initial_state(environment.sample_task(seed), seed)
    moves = 0
    while state.status == "active":
        state = environment.step(state, max(oracle.valid_actions(state))).state
        moves += 1
    assert (environment.outcome(state), moves) == (1.0, first.shortest)


def test_it_is_made_by_its_name():
    oracle = oracles.make("sokoban_search", solvable=0.5)
    assert oracles.spec(oracle) == ("sokoban_search", {"solvable": 0.5})
    with pytest.raises(ValueError, match=r"solvable must be .* got 2"):
        oracles.make("sokoban_search", solvable=2)
