"""Trainings side by side, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hf_credit.cli.progress import Progress, Task

OUTPUT_FILE = "output.log"
_LAST_LINES = 20
_SECONDS_BETWEEN_LOOKS = 0.25
_SECONDS_TO_STOP = 10
_MOST_THREADS = 4


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training to run.

    Attributes:
        name: what to call it.
        recipe: for `hf-credit train`.
        folder: the recipe's `output_dir`.
        updates: the recipe's `max_steps`.
    """

    name: str
    recipe: Path
    folder: Path
    updates: int


def train_side_by_side(trainings: Sequence[Training], progress: Progress) -> None:
    """Runs all trainings at once and shows how far they are, from the logs that they write.

    Their threads share the cores: threads beyond the cores spin against each other. What they print goes to
    `output.log` in their folders. When one fails, when this process is told to stop or when anything else goes wrong
    here, all are stopped.

    Raises:
        ValueError: a training failed; the sentence ends with the last lines that it printed.
    """
    from hf_credit.evaluation.runs import LOG_FILE

    tasks = {one.name: progress.task(one.name, one.updates) for one in trainings}
    for one in trainings:
        one.folder.mkdir(parents=True, exist_ok=True)
        (one.folder / LOG_FILE).unlink(missing_ok=True)
    with _stopped_together(trainings, threads_each(len(trainings))) as processes:
        running = dict(processes)
        while running:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            ended = {name: code for name, process in running.items() if (code := process.poll()) is not None}
            for one in trainings:
                _show(one.folder / LOG_FILE, tasks[one.name])
                if ended.get(one.name):
                    raise ValueError(_failure(one, ended[one.name]))
            running = {name: process for name, process in running.items() if name not in ended}


def threads_each(processes: int) -> int:
    """Threads for each of some processes at work at once on this machine's cores; small policies gain from few."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores // processes, _MOST_THREADS))


@contextlib.contextmanager
def _stopped_together(trainings: Sequence[Training], threads: int) -> Iterator[Mapping[str, subprocess.Popen[bytes]]]:
    """Starts the trainings, and leaves none behind."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
    }
    processes: dict[str, subprocess.Popen[bytes]] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_termination_raises())
        stack.callback(_stop, processes)
        for one in trainings:
            output = stack.enter_context((one.folder / OUTPUT_FILE).open("wb"))
            processes[one.name] = subprocess.Popen(
                [sys.executable, "-m", "hf_credit.cli", "train", str(one.recipe)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        yield processes


def _stop(processes: Mapping[str, subprocess.Popen[bytes]]) -> None:
    for process in processes.values():
        if process.poll() is None:
            process.terminate()
    for process in processes.values():
        try:
            process.wait(_SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """SIGTERM unwinds the stack as Ctrl-C does, so that what is to be stopped on the way out is stopped."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(log: Path, task: Task) -> None:
    from hf_credit.evaluation.runs import read_log
    from hf_credit.trainers.recording import note

    entries = read_log(log)
    if entries and entries[-1]["step"] > task.done:
        task.update(entries[-1]["step"], note(entries[-1]) or None)


def _failure(training: Training, code: int) -> str:
    lines = (training.folder / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    last = "\n".join(lines[-_LAST_LINES:]) or "(nothing)"
    return f"the training {training.name!r} failed with exit code {code}; it last printed:\n{last}"
