"""Scripts in processes of their own, each a copy of one that has imported everything: most of what a short run takes.

None of them sees a GPU: there may be fewer than processes, FSDP takes one wherever it sees one, runs are bitwise the
same on CPUs alone, and a copy of a process that has asked for a GPU cannot use it.

Whatever depends on how a program is started, or on what it imports, is tested with a program that is started afresh.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.distributed import TCPStore

IMPORTED = [
    "hf_credit.trainers.verifiable_process",
    "hf_credit.trainers.replay_loo",
    "hf_credit.cli",
    "datasets",
    "transformers.models.qwen3.modeling_qwen3",
    "copied",
]
MOST_SECONDS = 300
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def start(
    script: str | Path,
    *arguments: object,
    log: Path,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> BaseProcess:
    """Starts `python script arguments`.

    Args:
        script: its path.
        arguments: of its command line.
        log: gets what it prints; what it complains of goes to the same name with `.err` behind it.
        environment: variables beside those of this process. What is read on import was read before.
        folder: where it works; here if `None`.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    told = {**os.environ, **NO_GPU, **(environment or {})}
    process = context.Process(
        target=_run, args=(str(script), [str(one) for one in arguments], str(log), told, str(folder or Path.cwd()))
    )
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), os.path.dirname(__file__)])
    # Of the process that is copied, which the first one starts; it finds `copied` by the path.
    with patch.dict(os.environ, {**NO_GPU, "PYTHONPATH": path}):
        process.start()
    return process


class Started:
    """A script as `start` starts it, with what is asked of a `Popen`."""

    def __init__(self, script: str | Path, *arguments: object, log: Path) -> None:
        self.process = start(script, *arguments, log=log)

    def poll(self) -> int | None:
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> None:
        self.process.join()


def finish(process: BaseProcess, log: Path) -> str:
    """What a process printed until it ended, which has to be well."""
    process.join(MOST_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode == 0, f"exit status {process.exitcode}\n{_errors(log).read_text(errors='replace')[-3000:]}"
    return log.read_text(encoding="utf-8")


def completed(command: Sequence[object], log: Path, **how: Any) -> subprocess.CompletedProcess[bytes]:
    """What `subprocess.run(command, capture_output=True)` gives of a process that may fail.

    Args:
        command: a script and its arguments.
        log: as for `start`, as is `how`.
    """
    process = start(*command, log=log, **how)  # type: ignore[arg-type]
    process.join(MOST_SECONDS)
    process.kill()  # if it has not ended
    process.join()
    assert process.exitcode is not None
    return subprocess.CompletedProcess(command, process.exitcode, log.read_bytes(), _errors(log).read_bytes())


def launch(
    script: str | Path, *arguments: object, processes: int, folder: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Runs a script in several processes that find each other, as `torchrun` has it; each has to end well.

    Args:
        script, arguments, environment: as for `start`.
        processes: how many.
        folder: gets their logs.
    """
    # Their meeting place is here, at a port that is this process's own; they know by the last variable.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    both = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **(environment or {}),
    }
    logs = [folder / f"process_{rank}.log" for rank in range(processes)]
    started = [
        start(script, *arguments, log=log, environment={**both, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank, log in enumerate(logs)
    ]
    try:
        waiting = {process.sentinel: (process, log) for process, log in zip(started, logs, strict=True)}
        while waiting:
            ended = connection.wait(list(waiting), MOST_SECONDS)
            assert ended, f"{len(waiting)} of {processes} processes still ran after {MOST_SECONDS} seconds"
            for sentinel in ended:
                finish(*waiting.pop(sentinel))
    finally:
        for process in started:
            process.kill()
            process.join()


def _run(script: str, arguments: Sequence[str], log: str, environment: Mapping[str, str], folder: str) -> None:
    gc.freeze()  # every training collects garbage, and what is copied has none
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)  # as many run side by side; OMP_NUM_THREADS was read long ago
    for stream, path in ((1, Path(log)), (2, _errors(Path(log)))):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.chdir(folder)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


def _errors(log: Path) -> Path:
    return log.with_name(f"{log.name}.err")
