from __future__ import annotations

import subprocess
import sys

from hf_credit import make
from hf_credit.oracles import default_oracle


def play(typed: str, *arguments: str) -> tuple[int, str]:
    result = subprocess.run(
        [sys.executable, "-m", "hf_credit.cli", "play", *arguments], input=typed, capture_output=True, text=True
    )
    assert result.stderr == ""
    return result.returncode, result.stdout


def test_following_the_oracle_solves_the_puzzle() -> None:
    environment = make("sudoku", size=4, blanks=3)
    oracle = default_oracle(environment)
    assert oracle is not None
    state, typed, views = environment.initial_state(environment.sample_task(5), 5), "", []
    while state.status == "active":
        views.append(", ".join(sorted(oracle.valid_actions(state))))
        action = min(oracle.valid_actions(state))
        typed += f"?\n{action}\n"
        state = environment.step(state, action).state
    code, out = play(typed, "sudoku", "--option", "size=4", "--option", "blanks=3", "--seed", "5")
    assert code == 0
    for view in views:
        assert f"The oracle accepts: {view}" in out
    assert out.endswith("finished: success 1, completion 1\n")


def test_an_illegal_action_is_explained_and_not_played() -> None:
    code, out = play("place 9 9\nhello\n\nquit\n", "tic_tac_toe", "--seed", "1", "--option", "agent=first")
    assert code == 0
    assert "'place 9 9' is illegal" in out
    assert "'hello' is illegal" in out
    assert "a legal action is for example 'place 1 1'" in out
    assert "not finished: success 0" in out


def test_the_end_of_the_input_quits() -> None:
    code, out = play("<action>flag 1 1</action>\noracle\n", "minesweeper", "--seed", "2")
    assert code == 0
    assert "1 F . . . ." in out
    assert "The oracle accepts: " in out
    assert "\n> quit\n" in out


def test_the_same_seed_gives_the_same_game() -> None:
    assert play("", "minesweeper", "--seed", "7") == play("", "minesweeper", "--seed", "7")
    assert play("", "minesweeper", "--seed", "7") != play("", "minesweeper", "--seed", "8")


def test_without_a_seed_a_random_seed_is_shown() -> None:
    _, out = play("", "sudoku", "--option", "size=4")
    assert "Seed " in out


def test_a_game_of_queries_is_played_in_its_action_syntax() -> None:
    typed = "guess 1\nINTERACT A(0, 0)\ninteract A(0,  0)\n<answer>1, 1</answer>\n"
    code, out = play(typed, "circuit_decoding", "--option", "candidates=3", "--option", "inputs=2")
    assert code == 0
    assert out.count(" is illegal") == 2
    assert "finished: success" in out


def test_an_environment_with_open_actions_accepts_any_question() -> None:
    code, out = play("interact Was it Tuesday?\nquit\n", "situation_puzzles", "--option", "wording=brief")
    assert (code, out.count("Unknown Was it Tuesday")) == (0, 2)
