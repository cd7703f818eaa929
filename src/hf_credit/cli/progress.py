"""Progress on stderr: bars in a terminal, otherwise a line every few seconds; without other libraries' messages."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Self, TypeVar

from rich import box
from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column, Table
from rich.text import Text

from hf_credit.noise import silence_known_warnings
from hf_credit.words import duration

T = TypeVar("T")

_SECONDS_BETWEEN_LINES = 10.0
_STEPS_OF_AN_ESTIMATE = 3  # after the first ones: fewer are no rate
_MAX_COLUMNS = 10_000


class Task:
    """A task whose progress is shown.

    Args:
        total: the number of steps, or its upper bound.
    """

    def __init__(self, progress: Progress, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self.done = 0
        self._note, self._over = "", False
        self._progress = progress
        self._id = progress.bars.add_task(name, total=total, note="")
        self._shown = time.monotonic()
        # The first steps, which include the set-up, and when they were done.
        self._first: tuple[int, float] | None = None

    def begin_at(self, done: int) -> None:
        """Counts `done` steps of an earlier run, which the estimate of the remaining time ignores."""
        self.update(done)
        self._first = None

    def advance(self, steps: int = 1, note: str | None = None) -> None:
        """Counts `steps` more steps as done; `note` is shown next to them."""
        self.update(self.done + steps, note)

    def update(self, done: int, note: str | None = None) -> None:
        """Sets the number of steps done; `note` is shown next to it."""
        completed = done >= self.total and not self._over
        self._over |= completed
        self.done = done
        self._note = self._note if note is None else note
        now = time.monotonic()
        self._first = self._first or ((done, now) if done else None)
        self._progress.bars.update(self._id, completed=done, total=self.total, note=self._note)
        if completed or now - self._shown >= _SECONDS_BETWEEN_LINES:
            self._shown = now
            left = ""
            if self._first is not None and done < self.total and done - self._first[0] >= _STEPS_OF_AN_ESTIMATE:
                left = f" ({duration((now - self._first[1]) / (done - self._first[0]) * (self.total - done))} left)"
            self._progress.say(f"{self.name}: {done}/{self.total}{left} {self._note}".rstrip())

    def finish(self) -> None:
        """Marks the task as complete, with the steps that it took, which may be fewer than `total`."""
        self.total = self.done
        self.update(self.done)


class Progress:
    """A context manager that shows the progress of tasks."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        # The note has the width that the others leave; of these, the name and the bar shrink first.
        self.bars = RichProgress(
            TextColumn("{task.description}", table_column=Column(max_width=24, no_wrap=True, overflow="ellipsis")),
            BarColumn(bar_width=16),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn(
                "{task.fields[note]}", style="dim", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
            ),
            console=self.console,
            disable=not self.console.is_terminal,
            expand=True,
        )

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def task(self, name: str, total: int) -> Task:
        """Starts a task of `total` steps."""
        self.say(f"{name} ...")
        return Task(self, name, total)

    def over(self, items: Sequence[T], name: str) -> Iterator[T]:
        """Yields items, and shows how many."""
        task = self.task(name, len(items))
        for item in items:
            task.advance()
            yield item

    @contextlib.contextmanager
    def playing(self, name: str, replies: int | None = None) -> Iterator[None]:
        """Shows how many episodes end inside the block; or how many replies of at most so many are sampled."""
        from hf_credit.rollouts.pulse import PULSE

        ended, sampled = PULSE.ended, PULSE.replies
        task: Task | None = None  # begins with the first episode, since what is wrong with a model is told alone

        def show() -> None:
            nonlocal task
            done = PULSE.ended - ended
            if task is None:
                if replies is None and not (done or PULSE.open):
                    return
                task = self.task(name, replies or 0)
            task.total = done + PULSE.open if replies is None else replies
            note = ", ".join(filter(None, (PULSE.phase, PULSE.speed)))
            task.update(done if replies is None else PULSE.replies - sampled, note)

        with PULSE.watched(show, 1.0):
            yield
            show()
        if task is not None:
            task.finish()

    def line(self, text: str) -> None:
        """Prints a line, above the bars if there are any."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """Prints a line if there are no bars."""
        if not self.console.is_terminal:
            self.line(line)


def print_rows(header: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Prints a table of plain texts on stdout, fitted to the width of a terminal but not of a file or pipe."""
    shown = None if title is None else escape(title)
    table = Table(*map(escape, header), title=shown, box=box.SIMPLE_HEAD, title_justify="left")
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console()
    if not console.is_terminal:
        console.width = _MAX_COLUMNS
    console.print(table)


def show_markdown(text: str) -> None:
    """Prints a text in Markdown on stdout, drawn in a terminal and as it is in a file or pipe."""
    console = Console()
    console.print(Markdown(text) if console.is_terminal else Text(text), soft_wrap=not console.is_terminal)


def be_quiet() -> None:
    """Silences known warnings of libraries about each other, and their progress bars for reading and writing files."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    # Tables of missing tensors: `hf_credit.loading` raises an error of one sentence instead.
    logging.getLogger("transformers.modeling_utils").addFilter(lambda one: "LOAD REPORT" not in one.getMessage())
    silence_known_warnings()
