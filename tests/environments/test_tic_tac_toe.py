"""Tic-Tac-Toe: rules, replies, opponents."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_credit.environments as environments
from hf_credit.environments.tic_tac_toe import TicTacToe, TicTacToeState

ENVIRONMENT = TicTacToe()


def state(rows: str, agent: str = "X", seed: int = 0, opponent: str = "random") -> TicTacToeState:
    return TicTacToeState(seed=seed, board=rows.replace(" ", ""), agent=agent, opponent=opponent)


def test_the_first_player_starts_on_an_empty_board():
    first = ENVIRONMENT.initial_state({"agent": "first", "opponent": "random"}, 0)
    assert ENVIRONMENT.observe(first) == "You are X. Your turn.\n  1 2 3\n1 . . .\n2 . . .\n3 . . ."
    assert ENVIRONMENT.legal_actions(first)[:4] == ("place 1 1", "place 1 2", "place 1 3", "place 2 1")


@pytest.mark.parametrize("opponent", ["random", "mcts"])
def test_the_second_player_starts_after_one_mark_of_the_opponent(opponent):
    second = ENVIRONMENT.initial_state({"agent": "second", "opponent": opponent}, 0)
    assert ENVIRONMENT.observe(second).startswith("You are O. Your turn.\n")
    assert sorted(second.board) == sorted("........X")


def test_rows_and_columns_count_from_one_at_the_top_left():
    assert ENVIRONMENT.step(state("... ... ..."), "<action>place 1 3</action>").state.board[2] == "X"
    assert ENVIRONMENT.step(state("... ... ..."), "<action>place 3 1</action>").state.board[6] == "X"


@pytest.mark.parametrize(
    ("before", "agent", "action", "reward", "note"),
    [
        ("XX. OO. ...", "X", "place 1 3", 1.0, "You won."),
        ("OO. XX. X..", "O", "place 1 3", 1.0, "You won."),
        ("X.. OX. O..", "X", "place 3 3", 1.0, "You won."),
        ("XX. OO. ...", "X", "place 3 1", -1.0, "You lost."),
        ("OO. XX. X..", "O", "place 3 3", -1.0, "You lost."),
        ("XOX XOO OX.", "X", "place 3 3", 0.0, "Draw."),
        ("XOX XOO .X.", "O", "place 3 1", 0.0, "Draw."),
    ],
)
def test_games_end_in_a_win_a_loss_or_a_draw(before, agent, action, reward, note):
    transition = ENVIRONMENT.step(state(before, agent, opponent="mcts"), action)
    assert transition.terminated
    assert transition.state.status == "finished"
    assert transition.reward == ENVIRONMENT.outcome(transition.state) == reward
    assert transition.observation == ENVIRONMENT.observe(transition.state)
    assert transition.observation.startswith(f"You are {agent}. {note}\n")
    assert ENVIRONMENT.legal_actions(transition.state) == ()


def test_an_unfinished_game_has_outcome_zero():
    transition = ENVIRONMENT.step(state("... ... ..."), "place 2 2")
    assert (transition.reward, transition.terminated, transition.state.status) == (0.0, False, "active")
    assert transition.state.board.count("O") == 1
    assert transition.info["action"] == "place 2 2"
    row, column = map(int, transition.info["opponent_action"].split()[1:])
    assert transition.state.board[3 * (row - 1) + column - 1] == "O"


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        ("", None),
        ("I pass.", None),
        ("<action>place 1</action>", None),
        ("<action>place 2 2</action> or rather <action>mark 2 2</action>", None),
        ("<action>place 1 1</action>", "place 1 1"),
        ("<action>place 0 2</action>", "place 0 2"),
        ("<action>place 2 4</action>", "place 2 4"),
    ],
)
def test_an_illegal_or_unreadable_action_loses(reply, read):
    transition = ENVIRONMENT.step(state("X.. .O. ..."), reply)
    assert transition.state == replace(state("X.. .O. ..."), status="invalid")
    assert (transition.reward, transition.terminated, transition.info["action"]) == (-1.0, True, read)
    assert transition.observation.startswith("You are X. Invalid action: you lost.\n")


@pytest.mark.parametrize("status", ["finished", "invalid"])
def test_an_action_after_the_end_changes_nothing(status):
    over = replace(state("XXX OO. ..."), status=status)
    transition = ENVIRONMENT.step(over, "place 3 3")
    assert (transition.state, transition.reward, transition.terminated) == (over, 0.0, True)


@given(reply=st.text() | st.text(alphabet="<>/actionplce 0123").map("<action>place 2 2{}".format))
def test_no_reply_raises(reply):
    assert ENVIRONMENT.step(state("X.. .O. ..."), reply).state.status in ("active", "finished", "invalid")


@given(task_seed=st.integers(), seed=st.integers(), data=st.data())
@settings(deadline=None)
def test_a_game_of_legal_moves_ends_within_the_turn_limit(task_seed, seed, data):
    current = ENVIRONMENT.initial_state(ENVIRONMENT.sample_task(task_seed), seed)
    turns = 0
    while current.status == "active":
        assert TicTacToeState.from_json(current.to_json()) == current
        current = ENVIRONMENT.step(current, data.draw(st.sampled_from(ENVIRONMENT.legal_actions(current)))).state
        turns += 1
    assert current.status == "finished"
    assert turns <= ENVIRONMENT.max_turns


@pytest.mark.parametrize("opponent", ["random", "mcts"])
def test_the_opponents_move_depends_only_on_the_seed_and_the_board(opponent):
    def answer(seed):
        return (
            TicTacToe().step(state("... ... ...", seed=seed, opponent=opponent), "place 2 2").info["opponent_action"]
        )

    answers = [answer(seed) for seed in range(40)]
    assert answers == [answer(seed) for seed in range(40)]
    assert len(set(answers)) > 2


def test_the_random_opponent_uses_every_cell():
    answers = {ENVIRONMENT.step(state("... ... ...", seed=seed), "place 2 2").state.board for seed in range(200)}
    assert len(answers) == 8


def test_a_strong_mcts_opponent_answers_the_centre_with_a_corner():
    strong = TicTacToe(opponent_simulations=300)
    for seed in range(20):
        info = strong.step(state("... ... ...", seed=seed, opponent="mcts"), "place 2 2").info
        assert info["opponent_action"] in ("place 1 1", "place 1 3", "place 3 1", "place 3 3")


def test_the_mcts_opponent_blocks():
    for seed in range(40):
        info = ENVIRONMENT.step(state("X.. .O. ...", seed=seed, opponent="mcts"), "place 1 2").info
        assert info["opponent_action"] == "place 1 3"


def test_an_mcts_opponent_with_one_simulation_overlooks_a_win():
    weak = TicTacToe(opponent_simulations=1)
    before = [state("XX. OO. ...", seed=seed, opponent="mcts") for seed in range(40)]
    answers = {weak.step(here, "place 3 3").info["opponent_action"] for here in before}
    assert answers == {"place 1 3", "place 2 3", "place 3 1", "place 3 2"}


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({"opponent": "mcts", "agent": "first"}, {("first", "mcts")}),
        ({"opponent": "random", "agent": "second"}, {("second", "random")}),
        ({"agent": "first"}, {("first", "mcts"), ("first", "random")}),
        ({"mcts_share": 0}, {("first", "random"), ("second", "random")}),
        ({"mcts_share": 1}, {("first", "mcts"), ("second", "mcts")}),
    ],
)
def test_tasks_are_drawn_as_the_options_say(options, tasks):
    environment = environments.make("tic_tac_toe", **options)
    rows = [environment.sample_task(seed) for seed in range(60)]
    assert {(row["agent"], row["opponent"]) for row in rows} == tasks
    assert rows == [environment.sample_task(seed) for seed in range(60)]


def test_the_metrics_depend_on_who_moves_first():
    won = ENVIRONMENT.step(state("XX. OO. ..."), "place 1 3").state
    assert ENVIRONMENT.metrics(won) == {"success": 1, "draw": 0, "loss": 0, "return": 1, "return_first": 1}
    drawn = ENVIRONMENT.step(state("XOX XOO .X.", "O"), "place 3 1").state
    assert ENVIRONMENT.metrics(drawn) == {"success": 0, "draw": 1, "loss": 0, "return": 0, "return_second": 0}
    invalid = ENVIRONMENT.step(state("XX. OO. ..."), "pass").state
    assert ENVIRONMENT.metrics(invalid) == {"success": 0, "draw": 0, "loss": 1, "return": -1, "return_first": -1}


@pytest.mark.parametrize(
    "task",
    [{}, {"agent": "first"}, {"agent": "X", "opponent": "mcts"}, {"agent": "first", "opponent": "mixture"}],
)
def test_a_task_with_an_unknown_value_is_refused(task):
    with pytest.raises(ValueError, match=r"a Tic-Tac-Toe task's \w+ must be one of"):
        ENVIRONMENT.initial_state(task, 0)


def test_a_search_of_too_many_games_is_refused():
    with pytest.raises(
        ValueError,
        match="opponent_simulations x opponent_rollouts must be at most 1000000, got 100 x 1000000; lower one",
    ):
        environments.make("tic_tac_toe", opponent_rollouts=10**6)
