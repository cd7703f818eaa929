from __future__ import annotations

import pytest

from hf_credit.cli.progress import Progress


def test_outside_a_terminal_the_beginning_and_the_end_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        task = progress.task("games", 3)
        task.advance()
        task.advance(2, "all won")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "games ...\ngames: 3/3 all won\n"


def test_a_task_may_take_fewer_steps_than_it_might_have(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        task = progress.task("turns", 10)
        task.update(4, "fast")
        task.finish()
        task.finish()
    assert capsys.readouterr().err == "turns ...\nturns: 10/10 fast\n"
