"""Progress on stderr: bars in a terminal, a line now and then anywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

_SECONDS_BETWEEN_LINES = 10.0


class Task:
    """One thing under way.

    Args:
        progress: where it is shown.
        name: what it is called.
        total: how many steps it takes, or takes at most.
    """

    def __init__(self, progress: Progress, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self.done = 0
        self._note = ""
        self._progress = progress
        self._id = progress.bars.add_task(name, total=total, note="")
        self._shown = time.monotonic()

    def advance(self, steps: int = 1, note: str | None = None) -> None:
        """`steps` more are done."""
        self.update(self.done + steps, note)

    def update(self, done: int, note: str | None = None) -> None:
        """`done` steps are done; `note` stands behind them."""
        over = done >= self.total > self.done
        self.done = done
        self._note = self._note if note is None else note
        self._progress.bars.update(self._id, completed=done, note=self._note)
        if over or time.monotonic() - self._shown >= _SECONDS_BETWEEN_LINES:
            self._shown = time.monotonic()
            self._progress.say(f"{self.name}: {done}/{self.total} {self._note}".rstrip())

    def finish(self, note: str | None = None) -> None:
        """All is done, perhaps in fewer steps than it might have taken."""
        if self.done < self.total:
            self.update(self.total, note)


class Progress:
    """A context in which tasks are shown."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.bars = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def task(self, name: str, total: int) -> Task:
        """Starts a task of `total` steps."""
        self.say(f"{name} ...")
        return Task(self, name, total)

    def say(self, line: str) -> None:
        """A line, where there are no bars to say it."""
        if not self.console.is_terminal:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)
