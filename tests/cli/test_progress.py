from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from types import SimpleNamespace

import pytest

from hf_credit.cli import progress as module
from hf_credit.cli.progress import Progress, print_rows, show_markdown
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
    assert capsys.readouterr().err == "turns ...\nturns: 4/4 fast\n"


def test_what_is_played_inside_a_block_is_shown_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        with progress.playing("episodes"):
            PULSE.played(3, 0)
        with progress.playing("replies", 10):
            PULSE.replied([1] * 4)
        with progress.playing("nothing"):
            pass
    lines = [re.sub(r" [0-9]+ tokens/s", "", line) for line in capsys.readouterr().err.splitlines()]
    assert lines == ["episodes ...", "episodes: 3/3", "replies ...", "replies: 4/4"]


@pytest.mark.parametrize(("steps", "left"), [(20, " (7 min left)"), (2, "")])
def test_a_progress_line_has_the_remaining_time_by_the_rate_after_the_first_steps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, steps: int, left: str
) -> None:
    # Made, taken up at update 10, the first update of this run with all that comes before it, and some more.
    clock = iter([100.0, 100.0, 400.0, 400.0 + 6 * steps])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with Progress() as progress:
        task = progress.task("updates", 100)
        task.begin_at(10)
        task.update(11, "loss 2")
        task.update(11 + steps, "loss 1")
    lines = ["updates ...", "updates: 11/100 loss 2", f"updates: {11 + steps}/100{left} loss 1"]
    assert capsys.readouterr().err.splitlines() == lines


_LONG_NOTES = """
import time
from hf_credit.cli.progress import Progress

with Progress() as progress:
    task = progress.task({name!r}, 2000)
    for done in (1, 1234, 2000):
        task.update(done, "loss -0.043, reward 0.750, success 0.750 | update 2: generating, 3 of 8 episodes" * 2)
        progress.bars.refresh()
"""


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
@pytest.mark.parametrize("name", ["updates", "episodes of a/very/long/path/to/a/recipe.yaml"])
def test_a_terminal_of_any_width_shows_bar_count_and_times_beside_a_long_note(columns: int, name: str) -> None:
    bars = [line for line in in_a_terminal(_LONG_NOTES.format(name=name), columns) if "2000" in line]
    assert len(bars) >= 3
    for line in bars:
        assert len(line) <= columns
        assert re.search(
            r"^(updates|episo.*…) +[━╸╺]+ +[0-9]+/2000 [0-9]:[0-9]{2}:[0-9]{2} [-0-9]:[-0-9]{2}:[-0-9]{2}", line
        )
    assert any("1234/2000" in line for line in bars)
    if columns >= 80 and name == "updates":
        assert all("loss -0.043" in line for line in bars if " 0/2000" not in line)


def in_a_terminal(code: str, columns: int) -> list[str]:
    """The lines that a terminal of this width gets, without colours and movements."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    ends = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with subprocess.Popen([sys.executable, "-c", code], env={**variables, "TERM": "xterm"}, **ends) as process:
        os.close(terminal)
        written = b""
        while read := _read(screen):
            written += read
    os.close(screen)
    assert process.returncode == 0, written
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", written.decode())]


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 4096)
    except OSError:  # the last process that had the terminal has ended
        return b""


def test_a_table_outside_a_terminal_is_not_narrowed(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["x" * 90, "y" * 90], [["[-0.068, 0.068]" * 8, "z"]])
    out = capsys.readouterr().out
    assert "x" * 90 in out
    assert "[-0.068, 0.068]" * 8 in out


def test_markdown_is_drawn_in_a_terminal_and_kept_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    text = "## Bias\n\n| method | cost |\n| --- | --- |\n| `grpo` | [1, 2] |"
    show_markdown(text)
    assert capsys.readouterr().out == f"{text}\n"
    code = f"from hf_credit.cli.progress import show_markdown; show_markdown({text!r})"
    drawn = "\n".join(in_a_terminal(code, 60))
    assert "grpo" in drawn
    assert "[1, 2]" in drawn
    assert not {"|", "#", "`"} & set(drawn)


def test_no_title_of_a_table_is_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["[b]a"], [["[b]b"]], title="[b]T[/]")
    assert "[b]T[/]" in capsys.readouterr().out
