"""Trainings side by side, each a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
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

OUTPUT_FILE = "output.log"
_LAST_LINES = 20
_SECONDS_BETWEEN_LOOKS = 0.25
_SECONDS_TO_STOP = 10
_MOST_THREADS = 4

# `hf-credit train`, without the current folder on its path, that ends with the process whose number comes first.
_TRAIN = (
    "import sys; from hf_credit.cli import main, side_by_side; side_by_side.end_with(int(sys.argv[1])); "
    "sys.argv[1] = 'train'; main(sys.argv[1:])"  # the run notes its command from there
)
_PR_SET_PDEATHSIG = 1


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
    `output.log` in their folders. When one fails, at a signal to stop or when anything else goes wrong here, all are
    stopped, with what they started. When this process is killed, they end by themselves (Linux).

    Raises:
        ValueError: a training failed; the sentence ends with the last lines that it printed.
    """
    from hf_credit.evaluation.runs import LOG_FILE

    tasks = {one.name: progress.task(one.name, one.updates) for one in trainings}
    for one in trainings:
        one.folder.mkdir(parents=True, exist_ok=True)
        (one.folder / LOG_FILE).unlink(missing_ok=True)
    with _stopped_together() as (processes, signals):
        for one in trainings:
            _leave_if(signals)
            processes[one.name] = _start(one, threads_each(len(trainings)))
        running = dict(processes)
        while running:
            _leave_if(signals)
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            ended = {name: code for name, process in running.items() if (code := process.poll()) is not None}
            for one in trainings:
                _show(one.folder / LOG_FILE, tasks[one.name])
                if ended.get(one.name):
                    raise ValueError(_failure(one, ended[one.name]))
            running = {name: process for name, process in running.items() if name not in ended}
    _leave_if(signals)


def threads_each(processes: int) -> int:
    """Threads for each of some processes at work at once on this machine's cores; small policies gain from few."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores // processes, _MOST_THREADS))


def end_with(parent: int) -> None:
    """Makes the kernel kill this process when the one that started it is gone; at once if it already is (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


@contextlib.contextmanager
def _stopped_together() -> Iterator[tuple[dict[str, subprocess.Popen[bytes]], list[int]]]:
    """Processes by name, none of which is left behind, and the numbers of the signals to stop that came.

    Such a signal must not raise where it happens to come: a process may have been started and not yet noted, or others
    may be about to be stopped. It is noted instead, and asked for between steps.
    """
    signals: list[int] = []
    before: dict[signal.Signals, Any] = {}
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup and a shell's background have it
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
    with (training.folder / OUTPUT_FILE).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _TRAIN, str(os.getpid()), str(training.recipe)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,  # with all that it starts
        )


def _stop(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Ends processes and their groups: by a request, and if that does not help by force."""
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
        # Imported late, since it takes a while, in which a signal to stop would wait.
        from hf_credit.cli.training_progress import note

        task.update(entries[-1]["step"], note(entries[-1]) or None)


def _failure(training: Training, code: int) -> str:
    lines = (training.folder / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    last = "\n".join(lines[-_LAST_LINES:]) or "(nothing)"
    return f"the training {training.name!r} failed with exit code {code}; it last printed:\n{last}"
