"""Sokoban: rules, endings, tasks, and exact distances."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import pytest

import hf_credit.environments as environments
from hf_credit.environments import State
from hf_credit.environments.sokoban import Sokoban, after, left

CORRIDOR = ["#######", "#-----#", "#@$-.-#", "#-----#", "#######"]


@dataclass(frozen=True, kw_only=True)
class FakeState(State):
    """A state that says anything."""

    board: tuple
    shortest: int


def start(board, **options):
    size = {"rows": len(board), "columns": len(board[0]), "boxes": "".join(board).count("$")}
    environment = Sokoban(**{**size, "longest": 10, **options})
    return environment, environment.initial_state({"board": board}, seed=0)


def played(environment, state, *moves):
    return functools.reduce(lambda now, move: environment.step(now, f"<action>{move}</action>").state, moves, state)


def test_the_default_room_is_that_of_the_public_code():
    environment = environments.make("sokoban")
    assert isinstance(environment, Sokoban)
    assert (environment.rows, environment.columns, environment.boxes) == (7, 7, 3)
    assert (environment.longest, environment.max_turns) == (25, 36)


def test_the_agent_sees_the_board():
    environment, state = start(CORRIDOR)
    assert environment.observe(state) == ("# # # # # # #\n# - - - - - #\n# @ $ - . - #\n# - - - - - #\n# # # # # # #")


def test_pushing_the_box_onto_the_target_wins():
    environment, state = start(CORRIDOR)
    assert state.shortest == 2
    pushed = environment.step(state, "<action>RIGHT</action>")
    assert (pushed.reward, pushed.terminated, pushed.info["action"]) == (0.0, False, "right")
    assert pushed.state.board[2] == "#-@$.-#"
    won = environment.step(pushed.state, "right")
    assert won.state.board[2] == "#--@*-#"
    assert (won.reward, won.terminated, won.state.status) == (1.0, True, "finished")
    assert environment.metrics(won.state) == {"success": 1.0, "completion": 1.0}


def test_a_box_stops_at_a_wall_and_at_another_box():
    environment, state = start(["#######", "#--..-#", "#@$$--#", "#-----#", "#######"])
    assert environment.legal_actions(state) == ("up", "down")
    environment, state = start(CORRIDOR)
    assert environment.legal_actions(state) == ("up", "down", "right")


@pytest.mark.parametrize("action", ["left", "push right", "", "up up"])
def test_an_impossible_or_unreadable_move_loses(action):
    environment, state = start(CORRIDOR)
    lost = environment.step(state, action)
    assert (lost.reward, lost.state.status, lost.state.board) == (0.0, "invalid", state.board)
    assert environment.step(lost.state, "right").state == lost.state


def test_the_player_walks_over_targets():
    environment, state = start(CORRIDOR)
    state = played(environment, state, "up", "right", "right", "right", "down")
    assert state.board[2] == "#-$-+-#"
    assert played(environment, state, "right").board[2] == "#-$-.@#"


def test_a_box_in_a_corner_ends_the_episode_as_lost():
    environment, state = start(["######", "#-.--#", "#-$--#", "#-@--#", "######"], longest=6)
    assert state.shortest == 1
    # Round the box to its right, and one push to the left wall, along which it never comes to the target.
    lost = played(environment, state, "right", "up", "left")
    assert lost.board[2] == "#$@--#"
    assert (lost.status, environment.outcome(lost), environment.legal_actions(lost)) == ("finished", 0.0, ())
    assert environment.metrics(lost) == {"success": 0.0, "completion": 0.0}


def test_completion_is_the_share_of_a_shortest_solution_that_is_done():
    environment, state = start(CORRIDOR)
    assert environment.metrics(state)["completion"] == 0.0
    assert environment.metrics(played(environment, state, "right"))["completion"] == 0.5
    assert environment.metrics(played(environment, state, "up"))["completion"] == 0.0


def searched(state):
    """The least number of moves to a solution by a search forwards through boards; `None` if there is none."""
    level, known = [state.board], {state.board}
    for moves in range(60):
        if any("$" not in "".join(board) for board in level):
            return moves
        found = [one for board in level for one in after(type(state)(seed=0, board=board, shortest=1)).values()]
        level = [one for one in dict.fromkeys(found) if one not in known]
        known.update(level)
    return None


def test_distances_are_those_of_a_search_forwards_from_every_position():
    environment = Sokoban(rows=5, columns=6, boxes=1)
    solvable = set()
    for seed in range(4):
        first = environment.initial_state(environment.sample_task(seed), seed)
        boards = [first.board]
        for board in boards:
            state = type(first)(seed=0, board=board, shortest=1)
            assert left(board) == searched(state)
            solvable.add(left(board) is not None)
            boards += [one for one in after(state).values() if one not in boards]
    assert solvable == {True, False}


@pytest.mark.parametrize(
    "options", [{}, {"rows": 5, "columns": 5, "boxes": 1}, {"boxes": 1, "longest": 4, "turns": 4}], ids=str
)
def test_every_task_has_a_solution_within_its_limits(options):
    environment = Sokoban(**options)
    rows = [environment.sample_task(seed) for seed in range(12)]
    assert rows == [environment.sample_task(seed) for seed in range(12)]
    assert len({"".join(row["board"]) for row in rows}) > 6
    for row in rows:
        state = environment.initial_state(row, 0)
        assert 1 <= state.shortest <= environment.longest
        assert "*" not in "".join(row["board"])


@pytest.mark.parametrize(
    "board",
    [
        None,
        "#######",
        CORRIDOR[:4],
        [*CORRIDOR[:4], "######-"],
        ["#######", "#-----#", "#@$-.@#", "#-----#", "#######"],
        ["#######", "#-----#", "#@$---#", "#-----#", "#######"],
        ["#######", "#-----#", "#@*---#", "#-----#", "#######"],
        ["#######", "#$----#", "#@--.-#", "#-----#", "#######"],
        ["#######", "#-----#", "#@$-.x#", "#-----#", "#######"],
        [1, 2, 3, 4, 5],
    ],
)
def test_a_board_that_is_no_room_or_cannot_be_solved_is_refused(board):
    environment = Sokoban(rows=5, columns=7, boxes=1)
    with pytest.raises(ValueError, match=r"a Sokoban board must be 5 rows of 7 characters .*, got "):
        environment.initial_state({"board": board}, 0)


@pytest.mark.parametrize(
    "changed", [{"board": ("-" * 90,) * 90}, {"board": ("#@$.-",) * 5}, {"board": ()}, {"shortest": 0}], ids=str
)
def test_a_state_of_others_whose_search_would_not_end_is_refused(changed):
    _, state = start(CORRIDOR)
    with pytest.raises(ValueError, match=r"a state of Sokoban must have a room .*; use states of the environment"):
        type(state).from_json(replace(FakeState(**vars(state)), **changed).to_json())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 4}, "rows must be a whole number from 5 to 8, got 4"),
        ({"columns": 9}, "columns must be a whole number from 5 to 8, got 9"),
        ({"rows": 5, "columns": 5, "boxes": 3}, "boxes must be a whole number from 1 to 2, got 3"),
        ({"boxes": 3, "longest": 2}, "longest must be .* 3, got 2"),
        ({"turns": 24}, "turns must be .* 25, got 24"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Sokoban(**options)
