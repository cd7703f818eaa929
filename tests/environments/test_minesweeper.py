"""Minesweeper: rules, replies, tasks."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_credit.environments as environments
from hf_credit.environments.minesweeper import Minesweeper

CORNERS = {"mines": [[1, 1], [1, 3], [3, 1], [3, 3]]}
TOP_LEFT = {"mines": [[1, 1], [1, 2]]}


def start(task, rows=3, columns=3):
    environment = Minesweeper(rows, columns, len(task["mines"]))
    return environment, environment.initial_state(task, seed=0)


def test_the_default_board_is_five_by_five_with_five_mines_and_an_open_centre():
    environment = environments.make("minesweeper")
    first = environment.initial_state({"mines": [[2, 2], [2, 4], [5, 1], [5, 2], [5, 3]]}, 0)
    assert environment.observe(first) == (
        "5 mines in total.\n  1 2 3 4 5\n1 . . . . .\n2 . . . . .\n3 . . 2 . .\n4 . . . . .\n5 . . . . ."
    )
    assert environment.max_turns == 25


def test_labels_of_two_digits_keep_the_columns_aligned():
    environment, first = start({"mines": [[1, 1]]}, rows=2, columns=10)
    assert environment.observe(first) == (
        "1 mine in total.\n    1  2  3  4  5  6  7  8  9 10\n"
        " 1  .  1  0  0  0  0  0  0  0  0\n 2  .  1  0  0  0  0  0  0  0  0"
    )


def test_a_zero_opens_its_neighbours():
    _, first = start({"mines": [[1, 1], [5, 5]]}, rows=5, columns=5)
    assert first.board == (".1000", "11000", "00000", "00011", "0001.")


def test_revealing_every_safe_cell_wins():
    environment, state = start(CORNERS)
    assert state.board == ("...", ".4.", "...")
    for action in ("reveal 1 2", "reveal 2 1", "reveal 2 3"):
        transition = environment.step(state, f"<action>{action}</action>")
        state = transition.state
        assert (transition.reward, transition.terminated, transition.info["action"]) == (0.0, False, action)
    transition = environment.step(state, "reveal 3 2")
    assert transition.state.board == (".2.", "242", ".2.")
    assert (transition.reward, transition.terminated, transition.state.status) == (1.0, True, "finished")
    assert environment.metrics(transition.state) == {"success": 1.0, "completion": 1.0}


def test_revealing_a_mine_loses_and_keeps_the_completion():
    environment, state = start(CORNERS)
    state = environment.step(state, "reveal 1 2").state
    transition = environment.step(state, "reveal 3 3")
    assert transition.observation == "4 mines in total.\n  1 2 3\n1 . 2 .\n2 . 4 .\n3 . . *"
    assert (transition.reward, transition.terminated, transition.state.status) == (0.0, True, "finished")
    assert environment.metrics(transition.state) == {"success": 0.0, "completion": 0.25}
    assert environment.legal_actions(transition.state) == ()


def test_a_flag_is_toggled_and_does_not_protect():
    environment, first = start(CORNERS)
    flagged = environment.step(first, "<action>flag 1 2</action>").state
    assert flagged.board == (".F.", ".4.", "...")
    assert environment.step(flagged, "flag 1 2").state == first
    assert environment.step(flagged, "reveal 1 2").state.board == (".2.", ".4.", "...")


def test_flagging_every_mine_does_not_win():
    environment, state = start(CORNERS)
    for row, column in CORNERS["mines"]:
        state = environment.step(state, f"flag {row} {column}").state
    assert (state.status, environment.outcome(state)) == ("active", 0.0)
    assert environment.metrics(state) == {"success": 0.0, "completion": 0.0}


def test_a_zero_opens_flagged_neighbours_too():
    environment, state = start({"mines": [[2, 2]]}, rows=3, columns=5)
    assert state.board == (".....", "..1..", ".....")
    state = environment.step(state, "flag 1 5").state
    assert environment.step(state, "reveal 2 5").state.board == ("..100", "..100", "..100")


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        ("", None),
        ("<action>open 1 1</action>", None),
        ("<action>reveal 1</action>", None),
        ("<action>reveal 1 1</action><action>reveal</action>", None),
        ("<action>reveal 0 1</action>", "reveal 0 1"),
        ("<action>reveal 1 4</action>", "reveal 1 4"),
        ("<action>reveal 2 2</action>", "reveal 2 2"),
        ("<action>flag 2 2</action>", "flag 2 2"),
    ],
)
def test_an_illegal_or_unreadable_action_ends_the_episode(reply, read):
    environment, first = start(CORNERS)
    transition = environment.step(first, reply)
    assert transition.state == replace(first, status="invalid")
    assert (transition.reward, transition.terminated, transition.info["action"]) == (0.0, True, read)
    assert environment.metrics(transition.state) == {"success": 0.0, "completion": 0.0}


def test_an_action_after_the_end_changes_nothing():
    environment, first = start(TOP_LEFT)
    lost = environment.step(first, "reveal 1 1").state
    transition = environment.step(lost, "reveal 1 3")
    assert (transition.state, transition.reward, transition.terminated) == (lost, 0.0, True)


def test_legal_actions_reveal_or_flag_every_hidden_cell():
    environment, state = start({"mines": [[2, 2]]}, rows=2, columns=2)
    state = environment.step(state, "flag 2 1").state
    assert state.board == ("1.", "F.")
    assert environment.legal_actions(state) == (
        "reveal 1 2",
        "reveal 2 1",
        "reveal 2 2",
        "flag 1 2",
        "flag 2 1",
        "flag 2 2",
    )


@given(reply=st.text() | st.text(alphabet="<>/actionrevlfg 0123").map("<action>reveal 1 1{}".format))
def test_no_reply_raises(reply):
    environment, first = start(TOP_LEFT)
    assert environment.step(first, reply).state.status in ("active", "finished", "invalid")


@st.composite
def boards(draw):
    rows, columns = draw(st.integers(2, 7)), draw(st.integers(2, 7))
    return Minesweeper(rows, columns, draw(st.integers(1, min(rows * columns - 2, 15))))


@given(environment=boards(), seed=st.integers(), data=st.data())
@settings(deadline=None)
def test_random_play_follows_the_rules(environment, seed, data):
    task = environment.sample_task(seed)
    state = environment.initial_state(task, seed)
    mines = {tuple(mine) for mine in task["mines"]}
    cells = set(product(range(1, environment.rows + 1), range(1, environment.columns + 1)))
    assert state.status == "active"
    assert len(mines) == environment.mines
    assert mines < cells - {environment.centre}
    completion = 0.0
    while state.status == "active":
        assert type(state).from_json(state.to_json()) == state
        state = environment.step(state, data.draw(st.sampled_from(environment.legal_actions(state)))).state
        marks = {(row, column): state.board[row - 1][column - 1] for row, column in cells}
        for (row, column), mark in marks.items():
            around = {(r, c) for r in range(row - 1, row + 2) for c in range(column - 1, column + 2)} & cells
            if mark not in ".F*":
                assert (row, column) not in mines
                assert int(mark) == len(around & mines)
                assert mark != "0" or not any(marks[other] in ".F" for other in around)
        revealed_all = all(marks[cell] not in ".F" for cell in cells - mines)
        assert (state.status == "active") == (not revealed_all and "*" not in marks.values())
        assert environment.outcome(state) == float(revealed_all)
        assert completion <= environment.metrics(state)["completion"] <= 1
        completion = environment.metrics(state)["completion"]
    assert (completion == 1) == (environment.outcome(state) == 1)


def test_every_unsolved_layout_is_equally_likely():
    environment = Minesweeper(3, 3, 2)  # 8 * 7 / 2 layouts; the centre shows a 2 in each
    counts = {}
    for seed in range(2800):
        layout = tuple(map(tuple, environment.sample_task(seed)["mines"]))
        counts[layout] = counts.get(layout, 0) + 1
    assert len(counts) == 28
    assert all(60 < count < 140 for count in counts.values())  # 100 expected, standard deviation 10


def test_a_task_is_never_solved_by_its_start():
    environment = Minesweeper(2, 9, 1)
    for seed in range(50):
        task = environment.sample_task(seed)
        assert task == environment.sample_task(seed)
        assert environment.initial_state(task, seed).status == "active"


def test_a_layout_that_the_start_solves_is_won_immediately():
    environment, first = start({"mines": [[1, 1]]}, rows=5, columns=5)
    assert first.status == "finished"
    assert environment.legal_actions(first) == ()
    assert environment.metrics(first) == {"success": 1.0, "completion": 1.0}


@pytest.mark.parametrize(
    "mines",
    [
        None,
        2,
        [],
        [[1, 1]],
        [[1, 1], [1, 1]],
        [[1, 1], [2, 2]],
        [[0, 1], [1, 1]],
        [[1, 4], [1, 1]],
        [[1, 1.5], [1, 1]],
        "ab",
    ],
)
def test_a_task_with_impossible_mines_is_refused(mines):
    with pytest.raises(ValueError, match=r"a Minesweeper task's mines must be 2 different \[row, column\]"):
        Minesweeper(3, 3, 2).initial_state({"mines": mines}, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 1}, "rows must be a whole number from 2 to 30, got 1"),
        ({"columns": 31}, "columns must be a whole number from 2 to 30, got 31"),
        ({"columns": "5"}, "columns must be a whole number from 2 to 30, got '5'"),
        ({"mines": 0}, r"mines must be a whole number from 1 to 23, got 0"),
        ({"mines": 24}, r"mines must be a whole number from 1 to 23, got 24"),
        (
            {"rows": 2, "columns": 2, "mines": 4},
            r"mines must be a whole number from 1 to 2, got 4",
        ),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        environments.make("minesweeper", **options)


@pytest.mark.parametrize("size", [(1500, 1500), (31, 5), (5, 31), (5, 0)])
def test_a_state_of_others_with_a_board_that_no_game_has_is_refused(size):
    game = Minesweeper()
    state = game.initial_state(game.sample_task(0), 0)
    with pytest.raises(ValueError, match="must be a whole number from 1 to 30, got"):
        replace(state, board=("." * size[1],) * size[0])
