"""The search oracle against a brute-force minimax."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from hf_credit.environments.tic_tac_toe import TicTacToeState
from hf_credit.oracles.mcts import MCTSOracle

LINES = ["012", "345", "678", "036", "147", "258", "048", "246"]


def won(board, mark):
    return any(all(board[int(cell)] == mark for cell in line) for line in LINES)


@cache
def minimax(board):
    """The return of X under perfect play."""
    if won(board, "X") or won(board, "O") or "." not in board:
        return won(board, "X") - won(board, "O")
    return (max if to_move(board) == "X" else min)(minimax(after) for after in successors(board).values())


def to_move(board):
    return "X" if board.count("X") == board.count("O") else "O"


def successors(board):
    mark = to_move(board)
    return {
        f"place {cell // 3 + 1} {cell % 3 + 1}": board[:cell] + mark + board[cell + 1 :]
        for cell in range(9)
        if board[cell] == "."
    }


def optimal(board):
    values = {
        action: minimax(after) * (1 if to_move(board) == "X" else -1) for action, after in successors(board).items()
    }
    return {action for action, value in values.items() if value == max(values.values())}


@cache
def reachable():
    """Every reachable board where the game is on."""
    found, waiting = set(), ["." * 9]
    while waiting:
        board = waiting.pop()
        if board not in found and not won(board, "X") and not won(board, "O") and "." in board:
            found.add(board)
            waiting.extend(successors(board).values())
    return sorted(found)


def state(rows, **fields):
    board = rows.replace(" ", "")
    return TicTacToeState(**{"seed": 0, "board": board, "agent": to_move(board), **fields})


def first_of_its_kind(board):
    """Whether it is the first in the alphabet of those that turning and mirroring make of it."""
    kind = [board]
    for _ in range(3):
        kind.append("".join(kind[-1][cell] for cell in (6, 3, 0, 7, 4, 1, 8, 5, 2)))
    return board == min(kind + [one[2::-1] + one[5:2:-1] + one[:5:-1] for one in kind])


def test_with_solving_the_valid_set_is_the_minimax_optimal_set_on_every_kind_of_board():
    oracle = MCTSOracle(simulations=20_000, solve=True)
    assert len(reachable()) == 4520  # of 5478 reachable boards, 958 are final
    kinds = [board for board in reachable() if first_of_its_kind(board)]
    assert len(kinds) == 627
    assert [board for board in kinds if oracle.valid_actions(state(board)) != optimal(board)] == []


def test_the_fewer_simulations_the_more_often_the_oracle_is_wrong():
    def wrong(simulations):
        oracle = MCTSOracle(simulations=simulations)
        return sum(not oracle.valid_actions(state(board)) <= optimal(board) for board in reachable()[::20])

    errors = [wrong(simulations) for simulations in (2, 20, 200)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[0] > len(reachable()[::20]) / 4


@pytest.mark.parametrize(
    ("rows", "valid"),
    [
        ("XX. OO. ...", {"place 1 3"}),  # win rather than block
        ("X.. OO. X..", {"place 2 3"}),  # block
        ("OO. XX. X..", {"place 1 3"}),  # O wins
        ("X.. .O. ..X", {"place 1 2", "place 2 1", "place 2 3", "place 3 2"}),  # a corner would lose to a fork
        ("... .X. ...", {"place 1 1", "place 1 3", "place 3 1", "place 3 3"}),
        ("XOX OXO .X.", {"place 3 1", "place 3 3"}),  # O cannot stop both diagonals: all is lost, all is valid
    ],
)
def test_positions_to_check_by_eye(rows, valid):
    oracle = MCTSOracle(simulations=5000, solve=True)
    assert oracle.valid_actions(state(rows)) == valid


def test_the_value_is_the_agents_against_perfect_play_whatever_the_opponent():
    oracle = MCTSOracle(simulations=50)
    here = state("X.. .O. ...")
    assert oracle.valid_actions(here) == oracle.valid_actions(replace(here, seed=9, opponent="mcts"))


def test_equal_oracles_agree_and_another_seed_may_not():
    def answers(seed):
        return [MCTSOracle(simulations=5, seed=seed).valid_actions(state(board)) for board in reachable()[:200]]

    assert answers(1) == answers(1)
    assert answers(1) != answers(2)


def test_a_move_the_search_never_tried_is_not_valid():
    assert len(MCTSOracle(simulations=1, tolerance=10).valid_actions(state("... ... ..."))) == 1
    assert len(MCTSOracle(simulations=9, tolerance=10).valid_actions(state("... ... ..."))) == 9


def test_score_is_membership_of_the_action_in_the_reply():
    oracle = MCTSOracle()
    here = state("XX. OO. ...")
    assert oracle.score(here, "Now I win! <ACTION>Place 1 3</ACTION>") == oracle.score(here, "place 1 3") == 1.0
    assert oracle.score(here, "<action>place 3 3</action>") == oracle.score(here, "no idea") == 0.0


@pytest.mark.parametrize("status", ["finished", "invalid"])
def test_nothing_is_valid_once_the_episode_is_over(status):
    assert MCTSOracle().valid_actions(state("XX. OO. ...", status=status)) == frozenset()
