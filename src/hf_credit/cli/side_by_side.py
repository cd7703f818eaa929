"""Runs several trainings in parallel, each in its own process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_credit.cli.progress import Progress, Task
from hf_credit.files import log_of_process, write

OUTPUT_FILE = "output.log"
_LAST_LINES = 20
_SECONDS_BETWEEN_CHECKS = 0.25
_SECONDS_TO_STOP = 10
_MAX_THREADS = 4

# `hf-credit train` without the current folder on its path. The first argument is the parent's process id.
_TRAIN = (
    "import sys; from hf_credit import processes; from hf_credit.cli import main; "
    "processes.end_with(int(sys.argv[1])); "
    "sys.argv[1] = 'train'; main(sys.argv[1:])"  # a run records its command from sys.argv
)


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training to run.

    Attributes:
        name: its label in progress and errors.
        recipe: for `hf-credit train`.
        folder: the recipe's `output_dir`.
        updates: the recipe's `max_steps`.
    """

    name: str
    recipe: Path
    folder: Path
    updates: int


def train_side_by_side(trainings: Sequence[Training], progress: Progress) -> None:
    """Runs all trainings in parallel and shows their progress, which is read from their logs.

    Their threads share the cores, as more threads than cores slow each other down. Each training prints to
    `output.log` in its folder. If a training fails, a signal to stop arrives or this function raises, all trainings
    and the processes that they started are stopped. If this process is killed, they end by themselves.

    Raises:
        ValueError: a training failed; the message ends with the last lines that it printed.
    """
    from hf_credit.evaluation.runs import LOG_FILE

    tasks = {one.name: progress.task(one.name, one.updates) for one in trainings}
    for one in trainings:
        write(one.folder / LOG_FILE, "")
    with _stopped_together() as (processes, signals):
        for one in trainings:
            _leave_if(signals)
            processes[one.name] = _start(one, threads_each(len(trainings)))
        running = dict(processes)
        while running:
            _leave_if(signals)
            time.sleep(_SECONDS_BETWEEN_CHECKS)
            ended = {name: code for name, process in running.items() if (code := process.poll()) is not None}
            for one in trainings:
                _show(one.folder / LOG_FILE, tasks[one.name])
                if ended.get(one.name):
                    raise ValueError(_failure(one, ended[one.name]))
            running = {name: process for name, process in running.items() if name not in ended}
    _leave_if(signals)


def threads_each(processes: int) -> int:
    """Returns the number of threads for each of some parallel processes; small policies do not gain from many."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores // processes, _MAX_THREADS))


@contextlib.contextmanager
def _stopped_together() -> Iterator[tuple[dict[str, subprocess.Popen[bytes]], list[int]]]:
    """Yields a dictionary for processes by name, which are stopped at the end, and the list of received stop signals.

    A signal must not raise wherever it arrives: a process may have been started but not yet recorded, or others may be
    about to be stopped. The handler records the signal, and the caller checks for it between steps.
    """
    signals: list[int] = []
    before: dict[signal.Signals, Any] = {}
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # ignored under nohup and in a shell's background
                before[number] = signal.signal(number, lambda number, frame: signals.append(number))
        yield processes, signals
    finally:
        _stop(processes.values())
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_if(signals: Sequence[int]) -> None:
    if signals:
        raise KeyboardInterrupt if signals[0] == signal.SIGINT else SystemExit(128 + signals[0])


def _start(training: Training, threads: int) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
    }
    with log_of_process(training.folder / OUTPUT_FILE) as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _TRAIN, str(os.getpid()), str(training.recipe)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,  # so that the processes that it starts can be stopped with it
        )


def _stop(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Ends processes and their groups by SIGTERM, and by SIGKILL if they do not end in time."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        _signal_group(process, signal.SIGTERM)
    deadline = time.monotonic() + _SECONDS_TO_STOP
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _show(log: Path, task: Task) -> None:
    from hf_credit.evaluation.runs import read_log

    entries = read_log(log)
    if entries and entries[-1]["step"] > task.done:
        # Imported late: the import is slow, and a signal to stop would have to wait for it.
        from hf_credit.cli.training_progress import note

        task.update(entries[-1]["step"], note(entries[-1]) or None)


def _failure(training: Training, code: int) -> str:
    lines = (training.folder / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    last = "\n".join(lines[-_LAST_LINES:]) or "(nothing)"
    return f"the training {training.name!r} failed with exit code {code}; it last printed:\n{last}"
