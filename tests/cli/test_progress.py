from __future__ import annotations

import re

import pytest
from rich.table import Table

from hf_credit.cli import progress as module
from hf_credit.cli.progress import Progress, print_rows, print_table
from hf_credit.rollouts.pulse import PULSE


def test_outside_a_terminal_start_and_end_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        task = progress.task("games", 3)
        task.advance()
        task.advance(2, "all won")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "games ...\ngames: 3/3 all won\n"


def test_a_task_may_take_fewer_steps_than_its_total(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        task = progress.task("turns", 10)
        task.update(4, "fast")
        task.finish()
        task.finish()
    assert capsys.readouterr().err == "turns ...\nturns: 10/10 fast\n"


def test_what_is_played_inside_a_block_is_shown_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        with progress.playing("episodes"):
            PULSE.played(3, 0)
        with progress.playing("replies", 10):
            PULSE.replied([1] * 4)
        with progress.playing("nothing"):
            pass
    lines = [re.sub(r" [0-9]+ tokens/s", "", line) for line in capsys.readouterr().err.splitlines()]
    assert lines == ["episodes ...", "episodes: 3/3", "replies ...", "replies: 10/10"]


@pytest.mark.parametrize(("steps", "left"), [(20, " (7 min left)"), (2, "")])
def test_a_progress_line_has_the_remaining_time_by_the_rate_after_the_first_steps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, steps: int, left: str
) -> None:
    # Made, taken up at update 10, the first update of this run with all that comes before it, and some more.
    clock = iter([100.0, 100.0, 400.0, 400.0 + 6 * steps])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    with Progress() as progress:
        task = progress.task("updates", 100)
        task.begin_at(10)
        task.update(11, "loss 2")
        task.update(11 + steps, "loss 1")
    lines = ["updates ...", "updates: 11/100 loss 2", f"updates: {11 + steps}/100{left} loss 1"]
    assert capsys.readouterr().err.splitlines() == lines


def test_a_table_outside_a_terminal_is_not_narrowed(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("x" * 90, "y" * 90)
    table.add_row("[-0.068, 0.068]" * 8, "z")
    print_table(table)
    out = capsys.readouterr().out
    assert "x" * 90 in out
    assert "[-0.068, 0.068]" * 8 in out


def test_no_title_of_a_table_is_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["[b]a"], [["[b]b"]], title="[b]T[/]")
    assert "[b]T[/]" in capsys.readouterr().out
