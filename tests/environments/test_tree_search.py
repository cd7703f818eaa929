"""UCT on games that can be worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_credit.environments.tree_search import MoveStatistics, best_moves, search


class Nim:
    """One heap; a move takes one or two stones, and who takes the last wins. A position is (stones, player)."""

    def player(self, position):
        return position[1]

    def moves(self, position):
        return tuple(range(1, min(2, position[0]) + 1))

    def play(self, position, move):
        return position[0] - move, 1 - position[1]

    def returns(self, position):
        if position[0]:
            return None
        return 1.0 if position[1] == 1 else -1.0


class Choice:
    """One move by `mover`: `good` returns 1 to that player, `bad` returns 0."""

    def __init__(self, mover):
        self.mover = mover

    def player(self, position):
        return self.mover

    def moves(self, position):
        return ("bad", "good")

    def play(self, position, move):
        return move

    def returns(self, position):
        return {"start": None, "bad": 0.0, "good": 1.0 if self.mover == 0 else -1.0}[position]


@given(stones=st.integers(1, 14), player=st.integers(0, 1), seed=st.integers(0, 3))
@settings(deadline=None)
def test_solving_proves_that_a_player_must_leave_a_multiple_of_three_stones(stones, player, seed):
    found = search(Nim(), (stones, player), simulations=500, exploration=1.4, solve=True, seed=seed)
    assert {move: move_found.proven for move, move_found in found.items()} == {
        move: 1.0 if (stones - move) % 3 == 0 else -1.0 for move in range(1, min(2, stones) + 1)
    }


@pytest.mark.parametrize("mover", [0, 1])
@pytest.mark.parametrize(("simulations", "visits"), [(10, (1, 9)), (11, (2, 9))])
def test_visits_follow_the_uct_formula(mover, simulations, visits):
    # The bad move, tried once, is tried again when sqrt(ln N) > 1 + sqrt(ln N / (N - 1)). With N = 9 simulations
    # done 1.482 < 1.524, with N = 10 done 1.517 > 1.506: so the eleventh is the first to go there again.
    found = search(Choice(mover), "start", simulations=simulations, exploration=1.0)
    assert (found["bad"].visits, found["good"].visits) == visits
    assert (found["bad"].mean, found["good"].mean) == (0.0, 1.0)


def test_without_exploration_the_better_move_gets_every_later_visit():
    found = search(Choice(0), "start", simulations=50, exploration=0.0)
    assert (found["bad"].visits, found["good"].visits) == (1, 49)


def test_an_unvisited_move_has_no_value():
    found = search(Nim(), (9, 0), simulations=1, exploration=1.4)
    assert sorted(move_found.visits for move_found in found.values()) == [0, 1]
    assert [move_found.value for move_found in found.values() if move_found.visits == 0] == [None]
    assert len(best_moves(found)) == 1


def test_nothing_is_proven_without_the_solver():
    found = search(Nim(), (4, 0), simulations=300, exploration=1.4)
    assert all(move_found.proven is None for move_found in found.values())
    assert sum(move_found.visits for move_found in found.values()) == 300


def test_solving_stops_once_every_move_is_proven():
    found = search(Nim(), (4, 0), simulations=10**9, exploration=1.4, solve=True)
    assert [move_found.proven for move_found in found.values()] == [1.0, -1.0]


def test_the_result_depends_only_on_the_arguments():
    def run(seed):
        return search(Nim(), (20, 0), simulations=60, exploration=1.4, rollouts_per_leaf=2, seed=seed)

    assert run(7) == run(7)
    assert run(7) != run(8)


def test_a_game_that_is_over_has_no_moves():
    assert search(Nim(), (0, 1), simulations=5, exploration=1.0) == {}


def test_a_proven_value_replaces_the_mean_and_ties_are_within_the_tolerance():
    found = {
        "proven": MoveStatistics(visits=5, mean=0.9, proven=0.0),
        "near": MoveStatistics(visits=5, mean=-0.05, proven=None),
        "far": MoveStatistics(visits=5, mean=-0.5, proven=None),
        "unknown": MoveStatistics(visits=0, mean=None, proven=None),
    }
    assert best_moves(found) == ("proven",)
    assert best_moves(found, tolerance=0.1) == ("proven", "near")
    assert best_moves({}) == ()
