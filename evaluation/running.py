"""Runs the cells of an experiment, each once, in processes of one thread. Scripts of `evaluation/` import it."""

from __future__ import annotations

import json
import logging
import multiprocessing
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

Work = Callable[..., None]


def in_parallel(work: Work, cells: Mapping[str, Sequence[Any]], workers: int) -> None:
    """Calls `work(*arguments)` for every cell. One that fails stops no other.

    Args:
        work: a function that another process can import.
        cells: the arguments of each, by its name.
        workers: processes of one thread each.

    Raises:
        RuntimeError: a cell failed.
    """
    failed: list[str] = []
    if workers == 1:
        for name, arguments in cells.items():
            _finish(name, work, arguments, None, failed)
    else:
        # A fresh interpreter for each worker: threads of the parent do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            futures = {pool.submit(work, *arguments): name for name, arguments in cells.items()}
            for future in as_completed(futures):
                _finish(futures[future], work, (), future, failed)
    if failed:
        raise RuntimeError(f"every cell must finish, got failures in {', '.join(failed)}; see above and run again.")


def write_whole(path: Path, cell: Mapping[str, Any]) -> None:
    """Writes a finished cell, whole or not at all."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(cell), encoding="utf-8")
    unfinished.replace(path)


def require_same_settings(settings: Any, path: Path) -> None:
    """Keeps cells of different settings out of one table.

    Raises:
        ValueError: what lies there was made with others.
    """
    settings = json.loads(json.dumps(settings))
    if not path.is_file():
        path.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    elif json.loads(path.read_text(encoding="utf-8")) != settings:
        raise ValueError(
            f"all cells of a folder must have the same settings, got {str(path)!r} of others; choose another --work."
        )


def prepare_process() -> None:
    """One thread, and no word from libraries about themselves."""
    import datasets
    import torch
    import transformers

    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)


def _finish(name: str, work: Work, arguments: Sequence[Any], future: Future[None] | None, failed: list[str]) -> None:
    try:
        work(*arguments) if future is None else future.result()
    except Exception:
        failed.append(name)
        traceback.print_exc()
    else:
        logging.info("finished %s", name)
