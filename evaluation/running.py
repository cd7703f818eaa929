"""Runs the cells of an experiment, each once, in processes of one thread. Scripts of `evaluation/` import it."""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from finished_cells import CELLS_FILE, load

from hf_credit.processes import end_with

Work = Callable[..., None]
SETTINGS_FILE = "settings.json"

ON_A_PROCESSOR: Mapping[str, Any] = {
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "report_to": "none",
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
}
"""Settings of every training of the evidence: without a GPU, each update logged, nothing saved or shown."""
UNTIL_SPENT: Mapping[str, Any] = {
    "max_steps": 100_000,
    "lr_scheduler_type": "constant_with_warmup",
    "shuffle_dataset": False,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "log_episodes": 0,
    "max_concurrent_episodes": 1024,
}
"""Settings of a training that ends with its tokens, whose number of updates is not known beforehand."""


def parse_options(
    parser: argparse.ArgumentParser | str | None, arguments: Sequence[str] | None, work: str, seeds: int | None = None
) -> argparse.Namespace:
    """The options of an experiment, with those that all of them have: `work`, `results`, `workers` and `cell`.

    Args:
        parser: of other options too; or the script's text about itself.
        arguments: the command line.
        work: the default of `--work`.
        seeds: how many there are, where fewer may be run.
    """
    if not isinstance(parser, argparse.ArgumentParser):
        parser = argparse.ArgumentParser(description=(parser or "").partition("\n")[0])
    if seeds is not None:
        parser.add_argument("--seeds", type=int, default=seeds, help="how many of the seeds to run")
    parser.add_argument("--work", type=Path, default=Path(work), help="starts and finished cells")
    parser.add_argument(
        "--results", type=Path, help="tables; if left out the committed ones, or WORK/results where cells are missing"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes of one thread each")
    parser.add_argument("--cell", nargs="+", metavar="WORD", help="run one cell and its start, and write no tables")
    return parser.parse_args(arguments)


def results_folder(
    options: argparse.Namespace,
    committed: Path,
    phases: Iterable[Sequence[tuple[Any, ...]]],
    file_of: Callable[..., Path],
) -> Path:
    """Where tables go: over the committed ones only where every registered cell is finished, unless a folder is named.

    Args:
        options: of `parse_options`.
        committed: the folder of the committed tables.
        phases, file_of: as for `run_cells`, of the registered experiment.
    """
    missing = [cell for cells in phases for cell in cells if not file_of(options.work, *cell).is_file()]
    folder = options.results or (options.work / "results" if missing else committed)
    logging.info("tables go to %s; %d registered cells are missing", folder, len(missing))
    return Path(folder)


def one_cell(
    phases: Iterable[Sequence[tuple[Any, ...]]], words: Sequence[str], start: str = ""
) -> list[list[tuple[Any, ...]]]:
    """The phases of one cell: its start, and itself.

    Args:
        phases: of all cells. What names a cell ends with an arm and a seed.
        words: that name it.
        start: the arm of starts; the start of a cell has its first word and its seed.

    Raises:
        ValueError: there is no such cell.
    """
    cells = list(dict.fromkeys(cell for phase in phases for cell in phase))
    for cell in cells:
        if [str(word) for word in cell] == list(words):
            starts = [
                one
                for one in cells
                if start and one[-2] == start and one[-1] == cell[-1] and one[:-2][:1] == cell[:-2][:1]
            ]
            return [starts, [cell]]
    shown = "; ".join(" ".join(map(repr, map(str, cell))) for cell in cells[:8])
    raise ValueError(f"a cell must be one of {shown} and so on, got {' '.join(map(repr, words))}; name one of these.")


def run_cells(
    work: Path,
    settings: Mapping[str, Any],
    phases: Iterable[Sequence[tuple[Any, ...]]],
    file_of: Callable[..., Path],
    run_cell: Work,
    experiment: Any,
    workers: int,
    arms: str = "",
) -> None:
    """Runs every cell that is not finished, one phase after the other. One that fails stops no other of its phase.

    Args:
        work: holds the settings and, in `cells`, a JSON file for each finished cell.
        settings: what finished cells depend on besides what names them.
        phases: the cells of each, as what names them; later ones need earlier ones.
        file_of: `file_of(work, *cell)` is the file of a cell.
        run_cell: `run_cell(experiment, *cell, work)` runs a cell and writes its file.
        experiment: what to run.
        workers: processes of one thread each.
        arms: as in `require_same_settings`.

    Raises:
        ValueError: what is finished in `work` was run with other settings.
        RuntimeError: a cell failed.
    """
    (work / "cells").mkdir(parents=True, exist_ok=True)
    require_same_settings(settings, work / SETTINGS_FILE, arms)
    for cells in phases:
        waiting = [cell for cell in cells if not file_of(work, *cell).is_file()]
        in_parallel(run_cell, {" ".join(map(str, cell)): (experiment, *cell, work) for cell in waiting}, workers)


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
        with ProcessPoolExecutor(workers, context, initializer=end_with, initargs=(os.getpid(),)) as pool:
            futures = {pool.submit(work, *arguments): name for name, arguments in cells.items()}
            for future in as_completed(futures):
                _finish(futures[future], work, (), future, failed)
    if failed:
        raise RuntimeError(f"every cell must finish, got failures in {', '.join(failed)}; see above and run again.")


def write_whole(path: Path, cell: Any) -> None:
    """Writes a finished cell, whole or not at all."""
    _write(path, json.dumps(cell))


def require_same_settings(settings: Any, path: Path, arms: str = "") -> None:
    """Keeps cells of different settings out of one table.

    Args:
        settings: of the cells to come.
        path: those of the cells that are there.
        arms: the key, wherever it occurs, of arms by name: of these there may be more than when the cells were run.

    Raises:
        ValueError: what lies there was made with others.
    """
    settings = json.loads(json.dumps(settings))
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    if known is not None and not _extends(settings, known, arms):
        raise ValueError(
            f"all cells of a folder must have the same settings, got {str(path)!r} of others; choose another --work."
        )
    if known != settings:
        _write(path, json.dumps(settings, indent=1) + "\n")


def take_finished(
    results: Path,
    work: Path,
    settings: Any,
    file_of: Callable[..., Path],
    key: Callable[[Any], tuple[Any, ...]],
    start: str,
    arms: str = "",
) -> dict[Path, Path]:
    """Takes the finished cells of committed tables, so that a new checkout goes on where they stop.

    Starts are made again when their rungs are run, since the tables hold no policies.

    Args:
        results: the folder of the committed tables.
        work, settings, arms: as for `run_cells`.
        file_of: as for `run_cells`.
        key: what a cell is a seed of; its last word is the arm.
        start: the arm of starts.

    Returns:
        The file of every committed start, by that of the start to make.

    Raises:
        ValueError: the tables are of other settings.
    """
    starts: dict[Path, Path] = {}
    if not (results / CELLS_FILE).is_file():
        return starts
    require_same_settings(settings, results / SETTINGS_FILE, arms)
    for folder in ("cells", "committed"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    if not (work / SETTINGS_FILE).is_file():
        shutil.copy(results / SETTINGS_FILE, work)
    for cell in load([results / CELLS_FILE]):
        file = file_of(work, *key(cell), cell["seed"])
        if key(cell)[-1] == start:
            starts[file] = file = work / "committed" / file.name
        if not file.is_file():
            write_whole(file, cell)
    return starts


def require_same_starts(starts: Mapping[Path, Path]) -> None:
    """Keeps trainings from other starts out of the committed tables.

    Args:
        starts: from `take_finished`; those that are not made yet are passed over.

    Raises:
        ValueError: a start that was made again succeeds in another share of the same episodes.
    """
    for pair in starts.items():
        made, committed = (json.loads(one.read_text("utf-8"))["success"] if one.is_file() else None for one in pair)
        if made not in (None, committed):
            raise ValueError(
                f"a start that is made again must succeed as the committed one, got {made} and {committed} of "
                f"{str(pair[0])!r}; use the versions in its made_with, or an empty --results to begin anew."
            )


def signals(
    folder: Path, methods: Iterable[str], collections: int, words: Sequence[str] = (), code: Path | None = None
) -> dict[str, Any]:
    """What `hf-credit diagnose --protocol signal` says of a start.

    Args:
        words: more of the command.
        code: a folder with modules that the task needs.
    """
    named = [word for method in methods for word in ("--method", method)]
    command = [sys.executable, "-m", "hf_credit.cli", "diagnose", str(folder), "--protocol", "signal", *named]
    said = subprocess.run(
        [*command, "--collections", str(collections), *words, "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **({} if code is None else {"PYTHONPATH": str(code)})},
    )
    (diagnosis,) = json.loads(said.stdout)
    return {name: diagnosis[name] for name in ("signals", "agreement", "cosines")}


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


def _extends(new: Any, old: Any, arms: str, names_arms: bool = False) -> bool:
    if not (isinstance(new, dict) and isinstance(old, dict)):
        return bool(new == old)
    same_keys = old.keys() <= new.keys() if names_arms else old.keys() == new.keys()
    return same_keys and all(_extends(new[key], old[key], arms, key == arms) for key in old)


def _write(path: Path, text: str) -> None:
    unfinished = path.with_suffix(".part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _finish(name: str, work: Work, arguments: Sequence[Any], future: Future[None] | None, failed: list[str]) -> None:
    try:
        work(*arguments) if future is None else future.result()
    except Exception:
        failed.append(name)
        traceback.print_exc()
    else:
        logging.info("finished %s", name)
