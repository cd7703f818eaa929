from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from hf_credit.cli.progress import Progress
from hf_credit.cli.side_by_side import Training, threads_each, train_side_by_side


@pytest.fixture
def training(recipe: Callable[..., Path], tmp_path: Path) -> Callable[..., Training]:
    def make(name: str, **changed: Any) -> Training:
        values = {**yaml.safe_load(recipe().read_text()), "output_dir": str(tmp_path / name), **changed}
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(values))
        return Training(name=name, recipe=path, folder=tmp_path / name, tokens=10**6)

    return make


def test_a_failed_training_stops_all_and_shows_its_last_lines(training: Callable[..., Training]) -> None:
    before = set(psutil.Process().children(recursive=True))
    long, wrong = training("long", max_steps=10**6), training("wrong")
    wrong.recipe.unlink()
    with (
        pytest.raises(ValueError, match="the training 'wrong' failed with exit code 1") as error,
        Progress() as progress,
    ):
        train_side_by_side([long, wrong], progress)
    assert "it last printed:\nError: a recipe must be a YAML file" in str(error.value)
    assert set(psutil.Process().children(recursive=True)) <= before


_PARENT = """
import sys
from pathlib import Path
from hf_credit.cli.progress import Progress
from hf_credit.evaluation.runs import LOG_FILE
from hf_credit.cli.side_by_side import Training, train_side_by_side

recipes = [Path(path) for path in sys.argv[1:]]
trainings = [Training(name=path.stem, recipe=path, folder=path.with_suffix(""), tokens=9) for path in recipes]
with Progress() as progress:
    train_side_by_side(trainings, progress)
"""


def of(recipes: list[str]) -> list[psutil.Process]:
    """Returns the processes with one of the recipes in their command."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and set(recipes) & set(process.cmdline()):
                found.append(process)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["Ctrl-C", "end", "kill"])
@pytest.mark.parametrize("present", [2, 3], ids=["the first starts", "both run"])
def test_no_training_outlives_the_process_that_started_it(
    training: Callable[..., Training], number: signal.Signals, present: int
) -> None:
    recipes = [str(training(name, max_steps=10**6).recipe) for name in ("one", "other")]
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, *recipes], stderr=subprocess.DEVNULL)
    while len(of(recipes)) < present:  # with the parent
        assert parent.poll() is None
        time.sleep(0.05)
    os.kill(parent.pid, number)
    assert parent.wait() != 0
    while left := of(recipes):  # a process that outlived the parent would never end
        psutil.wait_procs(left)


def test_threads_share_the_cores() -> None:
    cores = len(os.sched_getaffinity(0))
    assert threads_each(cores + 1) == 1
    assert 1 <= threads_each(1) <= cores
