"""The posterior oracle on positions to check by eye, and against an enumeration of all layouts."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_credit.oracles as oracles
from hf_credit.environments.minesweeper import Minesweeper, MinesweeperState
from hf_credit.oracles.minesweeper_posterior import MinesweeperPosteriorOracle

ORACLE = MinesweeperPosteriorOracle()


def board(rows, mines):
    """A board and its number of mines; where they really are is none of the oracle's business."""
    return MinesweeperState(seed=0, board=tuple(rows.split()), mines=((1, 1),) * mines)


def enumerated(state):
    """The posterior by going through every layout of the mines (paper VPR, eq. 3)."""
    marks = {(r, c): mark for r, row in enumerate(state.board, 1) for c, mark in enumerate(row, 1)}
    hidden = [cell for cell, mark in marks.items() if mark in ".F*"]
    layouts = [
        layout
        for layout in map(set, combinations(hidden, len(state.mines)))
        if all(
            int(mark) == sum(abs(r - row) <= 1 and abs(c - column) <= 1 for row, column in layout)
            for (r, c), mark in marks.items()
            if mark in "012345678"
        )
    ]
    return {cell: Fraction(sum(cell in layout for layout in layouts), len(layouts)) for cell in hidden}


def test_one_two_one_has_its_mines_at_the_ends():
    assert ORACLE.valid_actions(board("... 121", mines=2)) == {"reveal 1 2", "flag 1 1", "flag 1 3"}


def test_one_one_from_the_wall_leaves_the_third_cell_safe():
    # The mine of the first 1 is among the first two cells, and the second 1 sees both of them and the third.
    assert ORACLE.valid_actions(board("..... 11211", mines=2)) == {
        "reveal 1 1",
        "reveal 1 3",
        "reveal 1 5",
        "flag 1 2",
        "flag 1 4",
    }


def test_the_cells_no_digit_sees_share_the_remaining_mines():
    # 5x5, 5 mines, a 1 in the centre: 1 mine among its 8 neighbours, 4 among the 16 others.
    state = board("..... ..... ..1.. ..... .....", mines=5)
    posterior = ORACLE.mine_probabilities(state)
    assert posterior[2, 2] == Fraction(1, 8)
    assert posterior[1, 1] == Fraction(4, 16)
    assert ORACLE.valid_actions(state) == {f"reveal {r} {c}" for r in (2, 3, 4) for c in (2, 3, 4) if (r, c) != (3, 3)}
    # With a 2 it is 2/8 against 3/16: now away from the digit is the smaller risk.
    state = board("..... ..... ..2.. ..... .....", mines=5)
    assert ORACLE.mine_probabilities(state)[1, 1] == Fraction(3, 16)
    assert len(ORACLE.valid_actions(state)) == 16


def test_the_number_of_mines_weighs_the_layouts_of_the_frontier():
    # Cells 1, 3, 5 and 6 of one row are hidden. With 2 mines they lie at 3 and 6 or at 1 and 5.
    half = Fraction(1, 2)
    assert ORACLE.mine_probabilities(board(".1.1..", mines=2)) == {
        (1, 1): half,
        (1, 3): half,
        (1, 5): half,
        (1, 6): half,
    }
    # With 3 mines only 1, 5 and 6 is possible, with 1 mine only 3.
    assert ORACLE.valid_actions(board(".1.1..", mines=3)) == {"reveal 1 3", "flag 1 1", "flag 1 5", "flag 1 6"}
    assert ORACLE.valid_actions(board(".1.1..", mines=1)) == {"reveal 1 1", "reveal 1 5", "reveal 1 6", "flag 1 3"}


def test_flags_are_no_evidence():
    plain, flagged = board("..1..", mines=2), board("F.1F.", mines=2)
    assert ORACLE.mine_probabilities(plain) == ORACLE.mine_probabilities(flagged)
    assert ORACLE.valid_actions(plain) == ORACLE.valid_actions(flagged)


def test_a_certain_mine_is_flagged_once():
    # Flagging it again would remove the flag; revealing a wrongly flagged safe cell is right.
    assert ORACLE.valid_actions(board("F.. 121", mines=2)) == {"reveal 1 2", "flag 1 3"}
    assert ORACLE.valid_actions(board("FFF 121", mines=2)) == {"reveal 1 2"}


def test_ties_between_different_sums_are_exact():
    # 1/8 next to the digit, (3 - 1)/16 away from it.
    state = board("..... ..... ..1.. ..... .....", mines=3)
    assert set(ORACLE.mine_probabilities(state).values()) == {Fraction(1, 8)}
    assert len(ORACLE.valid_actions(state)) == 24


@st.composite
def positions(draw, largest, most_mines):
    """A board of random play that never met a mine, with some flags."""
    rows, columns = draw(st.integers(2, largest)), draw(st.integers(2, largest))
    environment = Minesweeper(rows, columns, draw(st.integers(1, min(rows * columns - 2, most_mines))))
    state = environment.initial_state(environment.sample_task(draw(st.integers(0, 10**6))), 0)
    for _ in range(draw(st.integers(0, rows * columns // 2))):
        safe = [
            action
            for action in environment.legal_actions(state)
            if action.startswith("flag") or tuple(map(int, action.split()[1:])) not in state.mines
        ]
        after = environment.step(state, draw(st.sampled_from(safe))).state
        if after.status != "active":
            break
        state = after
    return state


@given(state=positions(largest=4, most_mines=7))
@settings(max_examples=150, deadline=None)
def test_the_posterior_is_that_of_the_enumeration_and_so_is_the_valid_set(state):
    expected = enumerated(state)
    assert ORACLE.mine_probabilities(state) == expected
    reveals = {f"reveal {r} {c}" for (r, c), mine in expected.items() if mine == min(expected.values())}
    flags = {f"flag {r} {c}" for (r, c), mine in expected.items() if mine == 1 and state.board[r - 1][c - 1] == "."}
    assert ORACLE.valid_actions(state) == reveals | flags


@given(state=positions(largest=16, most_mines=60))
@settings(max_examples=30, deadline=None)
def test_the_posteriors_sum_to_the_number_of_mines_and_to_every_digit(state):
    posterior = ORACLE.mine_probabilities(state)
    assert all(0 <= mine <= 1 for mine in posterior.values())
    assert sum(posterior.values()) == len(state.mines)
    for row, column in product(range(1, len(state.board) + 1), range(1, len(state.board[0]) + 1)):
        mark = state.board[row - 1][column - 1]
        if mark not in ".F":
            around = product(range(row - 1, row + 2), range(column - 1, column + 2))
            assert sum(posterior.get(cell, 0) for cell in around) == int(mark)


@given(state=positions(largest=9, most_mines=20))
@settings(max_examples=30, deadline=None)
def test_cells_of_posterior_0_or_1_are_certain(state):
    for cell, mine in ORACLE.mine_probabilities(state).items():
        if mine in (0, 1):
            assert (cell in state.mines) == (mine == 1)


def test_the_mine_that_ended_the_episode_counts_as_hidden():
    environment = Minesweeper(3, 3, 4)
    first = environment.initial_state({"mines": [[1, 1], [1, 3], [3, 1], [3, 3]]}, 0)
    lost = environment.step(first, "reveal 1 1").state
    assert (
        ORACLE.mine_probabilities(lost)
        == ORACLE.mine_probabilities(first)
        == dict.fromkeys(set(product((1, 2, 3), repeat=2)) - {(2, 2)}, Fraction(1, 2))
    )
    assert ORACLE.valid_actions(lost) == frozenset()


def test_score_is_membership_of_the_action_in_the_reply():
    state = board("... 121", mines=2)
    assert ORACLE.score(state, "Both ends are mines. <action>Flag 1 1</action>") == 1.0
    assert ORACLE.score(state, "<action>reveal 1 1</action>") == ORACLE.score(state, "?") == 0.0


def test_a_board_without_any_layout_is_refused():
    with pytest.raises(ValueError, match="a board must agree with some layout of its 1 mines"):
        ORACLE.valid_actions(board(".. 31", mines=1))


def test_it_takes_no_options():
    assert isinstance(oracles.make("minesweeper_posterior"), MinesweeperPosteriorOracle)
    with pytest.raises(ValueError, match="got 'tolerance'"):
        oracles.make("minesweeper_posterior", tolerance=1e-9)
