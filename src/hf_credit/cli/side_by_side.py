"""Runs several trainings in parallel, each in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from code_sandbox.fork_server import processors
from hf_credit.cli.progress import Progress, Task
from hf_credit.evaluation.runs import LOG_FILE, read_log
from hf_credit.files import log_of_process, write

OUTPUT_FILE = "output.log"
_LAST_LINES = 20
_SECONDS_BETWEEN_CHECKS = 0.25
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
        tokens: the recipe's `max_sampled_tokens`.
    """

    name: str
    recipe: Path
    folder: Path
    tokens: int


def train_side_by_side(trainings: Sequence[Training], progress: Progress) -> None:
    """Runs all trainings in parallel and shows their progress, which is read from their logs.

    Their threads share the cores, as more threads than cores slow each other down. Each training prints to
    `output.log` in its folder. If one fails or this function raises, all are ended; they end by themselves within a
    second of this process, whatever ends it.

    Raises:
        ValueError: a training failed; the message ends with the last lines that it printed.
    """
    tasks = {one.name: progress.task(one.name, one.tokens) for one in trainings}
    sizes = dict.fromkeys(tasks, 0)
    for one in trainings:
        write(one.folder / LOG_FILE, "")
    processes: list[subprocess.Popen[bytes]] = []
    codes: list[int | None] = [None]
    try:
        for one in trainings:
            processes.append(_start(one, threads_each(len(trainings))))
        while None in codes:
            time.sleep(_SECONDS_BETWEEN_CHECKS)
            codes = [process.poll() for process in processes]
            for one, code in zip(trainings, codes, strict=True):
                if (size := (one.folder / LOG_FILE).stat().st_size) != sizes[one.name]:
                    sizes[one.name] = size
                    _show(one.folder / LOG_FILE, tasks[one.name])
                if code:
                    raise ValueError(_failure(one, code))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def threads_each(processes: int) -> int:
    """Returns the number of threads for each of some parallel processes; small policies do not gain from many."""
    return max(1, min(processors() // processes, _MAX_THREADS))


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
            process_group=0,  # an interrupt from the keyboard reaches this process alone
        )


def _show(log: Path, task: Task) -> None:
    entries = [entry for entry in read_log(log) if "budget/completion_tokens" in entry]
    sampled = min(int(entries[-1]["budget/completion_tokens"]), task.total) if entries else 0
    if sampled > task.done:
        from hf_credit.cli.training_progress import note

        task.update(sampled, note(entries[-1]) or None)


def _failure(training: Training, code: int) -> str:
    lines = (training.folder / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    last = "\n".join(lines[-_LAST_LINES:]) or "(nothing)"
    return f"the training {training.name!r} failed with exit code {code}; it last printed:\n{last}"
