from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from hf_credit import make
from hf_credit.environments.sudoku import Sudoku
from hf_credit.oracles import default_oracle

PUZZLE = ("--option", "size=4", "--option", "blanks=3", "--seed", "5")


@pytest.fixture
def play(command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """`play("quit\\n", "sudoku")` types into a game, and gives the exit code and what was printed."""

    def run(typed: str, *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        code, out, err = command("play", *arguments)
        assert err == ""
        return code, out

    return run


def test_following_the_oracle_solves_the_puzzle() -> None:
    """In a process of its own, as a user plays."""
    environment = make("sudoku", size=4, blanks=3)
    oracle = default_oracle(environment)
    assert oracle is not None
    state, typed, views = environment.initial_state(environment.sample_task(5), 5), "", []
    while state.status == "active":
        views.append(", ".join(sorted(oracle.valid_actions(state))))
        action = min(oracle.valid_actions(state))
        typed += f"?\n{action}\n"
        state = environment.step(state, action).state
    result = subprocess.run(
        [sys.executable, "-m", "hf_credit.cli", "play", "sudoku", *PUZZLE], input=typed, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")
    out = result.stdout
    for view in views:
        assert f"The oracle accepts: {view}" in out
    assert out.endswith("finished: success 1, completion 1\n")


def test_the_oracle_is_offered_only_where_there_is_one(
    play: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "? for the actions that the oracle accepts" in play("quit\n", "sudoku", *PUZZLE)[1]
    monkeypatch.setattr(Sudoku, "hypotheses_known", False, raising=False)  # no oracle of this world knows
    code, out = play("?\nquit\n", "hf_credit.environments.sudoku:Sudoku", *PUZZLE)
    assert code == 0
    assert "Type an action, or quit." in out
    assert "This environment has no oracle." in out


def test_an_illegal_action_is_explained_and_not_played(play: Callable[..., tuple[int, str]]) -> None:
    code, out = play("place 9 9\nhello\n\nquit\n", "tic_tac_toe", "--seed", "1", "--option", "agent=first")
    assert code == 0
    assert "'place 9 9' is illegal" in out
    assert "'hello' is illegal" in out
    assert "a legal action is for example 'place 1 1'" in out
    assert "not finished: success 0" in out


def test_the_end_of_the_input_quits(play: Callable[..., tuple[int, str]]) -> None:
    code, out = play("<action>flag 1 1</action>\noracle\n", "minesweeper", "--seed", "2")
    assert code == 0
    assert "1 F . . . ." in out
    assert "The oracle accepts: " in out
    assert "\n> quit\n" in out


def test_the_same_seed_gives_the_same_game(play: Callable[..., tuple[int, str]]) -> None:
    first, second, other = (play("", "minesweeper", "--seed", seed) for seed in ("7", "7", "8"))
    assert first == second != other


def test_without_a_seed_a_random_seed_is_shown(play: Callable[..., tuple[int, str]]) -> None:
    _, out = play("", "sudoku", "--option", "size=4")
    assert "Seed " in out


def test_a_game_of_queries_is_played_in_its_action_syntax(play: Callable[..., tuple[int, str]]) -> None:
    typed = "guess 1\nINTERACT A(0, 0)\ninteract A(0,  0)\n<answer>1, 1</answer>\n"
    code, out = play(typed, "circuit_decoding", "--option", "candidates=3", "--option", "inputs=2")
    assert code == 0
    assert out.count(" is illegal") == 2
    assert "finished: success" in out


def test_an_environment_with_open_actions_accepts_any_question(play: Callable[..., tuple[int, str]]) -> None:
    code, out = play("interact Was it Tuesday?\nquit\n", "situation_puzzles", "--option", "wording=brief")
    assert (code, out.count("Unknown Was it Tuesday")) == (0, 2)
