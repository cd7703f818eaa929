from __future__ import annotations

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
        return Training(name=name, recipe=path, folder=tmp_path / name, updates=values["max_steps"])

    return make


def test_a_training_that_fails_ends_all_and_shows_its_last_lines(training: Callable[..., Training]) -> None:
    before = set(psutil.Process().children(recursive=True))
    long, wrong = training("long", max_steps=10**6), training("wrong")
    wrong.recipe.unlink()
    with (
        pytest.raises(ValueError, match="the training 'wrong' failed with exit code 1") as error,
        Progress() as progress,
    ):
        train_side_by_side([long, wrong], progress)
    assert "it last printed:\nError: CONFIG must be a recipe's file" in str(error.value)
    assert set(psutil.Process().children(recursive=True)) <= before


_PARENT = """
import signal, sys
from pathlib import Path
from hf_credit.cli.progress import Progress
from hf_credit.cli.side_by_side import Training, train_side_by_side

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells switch it off for what runs in the background
recipes = [Path(path) for path in sys.argv[1:]]
trainings = [Training(name=path.stem, recipe=path, folder=path.with_suffix(""), updates=9) for path in recipes]
with Progress() as progress:
    train_side_by_side(trainings, progress)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "termination"])
def test_none_is_left_behind_when_the_user_stops(training: Callable[..., Training], number: signal.Signals) -> None:
    recipes = [str(training(name, max_steps=10**6).recipe) for name in ("one", "other")]
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, *recipes], stderr=subprocess.DEVNULL)
    children: list[psutil.Process] = []
    while len(children) < 2:
        assert parent.poll() is None
        time.sleep(0.05)
        children = psutil.Process(parent.pid).children()
    os.kill(parent.pid, number)
    assert parent.wait() != 0
    _, alive = psutil.wait_procs(children, timeout=0)
    assert alive == []


def test_threads_share_the_cores() -> None:
    cores = len(os.sched_getaffinity(0))
    assert threads_each(cores + 1) == 1
    assert 1 <= threads_each(1) <= cores
