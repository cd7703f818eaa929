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
        return Training(name=name, recipe=path, folder=tmp_path / name, updates=values["max_steps"])

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
import signal, sys
from pathlib import Path
from hf_credit.cli.progress import Progress
from hf_credit.evaluation.runs import LOG_FILE
from hf_credit.cli.side_by_side import Training, train_side_by_side

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by shells in the background
recipes = [Path(path) for path in sys.argv[1:]]
trainings = [Training(name=path.stem, recipe=path, folder=path.with_suffix(""), updates=9) for path in recipes]
with Progress() as progress:
    sys.setprofile(globals().get("watch"))
    train_side_by_side(trainings, progress)
"""

# Prefix of _PARENT: sends SIGTERM at the n-th occurrence of a step (event of sys.setprofile, function, n).
_AT = """
import os, signal, sys

def watch(frame, event, function):
    name = getattr(function, "__name__", "") if function is not None else frame.f_code.co_name
    left[event, name] = left.get((event, name), 0) - 1
    if left[event, name] == 0:
        os.kill(os.getpid(), signal.SIGTERM)

event, name, times = sys.argv[1:4]
left = {(event, name): int(times)}
del sys.argv[1:4]
"""


def of(recipes: list[str]) -> list[psutil.Process]:
    """Returns the processes with one of the recipes in their command."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and set(recipes) & set(process.cmdline()):
                found.append(process)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "termination"])
def test_a_signal_stops_all_processes(training: Callable[..., Training], number: signal.Signals) -> None:
    recipes = [str(training(name, max_steps=10**6).recipe) for name in ("one", "other")]
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, *recipes], stderr=subprocess.DEVNULL)
    while len(of(recipes)) < 3:  # with the parent
        assert parent.poll() is None
        time.sleep(0.05)
    os.kill(parent.pid, number)
    assert parent.wait() != 0
    assert of(recipes) == []


@pytest.mark.parametrize(
    ("step", "wrong"),
    [
        (("c_return", "fork_exec", "1"), False),
        (("c_return", "fork_exec", "2"), False),
        (("call", "_stop", "1"), True),
        (("call", "_stop", "1"), False),
        (("call", "poll", "1"), False),
        (("call", "wait", "1"), True),
    ],
    ids=["first starts", "second starts", "others stop", "second signal", "poll", "others end"],
)
def test_a_signal_at_any_moment_stops_all_processes(
    training: Callable[..., Training], step: tuple[str, str, str], wrong: bool
) -> None:
    trainings = [training(name, max_steps=10**6) for name in ("one", "other")]
    recipes = [str(one.recipe) for one in trainings]
    if wrong:
        trainings[0].recipe.unlink()
    parent = subprocess.Popen([sys.executable, "-c", _AT + _PARENT, *step, *recipes], stderr=subprocess.DEVNULL)
    if step[1] == "_stop" and not wrong:
        while len(of(recipes)) < 3:
            assert parent.poll() is None
        time.sleep(0.05)
        os.kill(parent.pid, signal.SIGTERM)
    assert parent.wait() != 0
    assert of(recipes) == []


def test_killing_the_parent_stops_all_processes(training: Callable[..., Training]) -> None:
    recipes = [str(training(name, max_steps=10**6).recipe) for name in ("one", "other")]
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, *recipes], stderr=subprocess.DEVNULL)
    while len(of(recipes)) < 3:
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    while left := of(recipes):  # a process that outlived the parent would never end
        psutil.wait_procs(left)


def test_threads_share_the_cores() -> None:
    cores = len(os.sched_getaffinity(0))
    assert threads_each(cores + 1) == 1
    assert 1 <= threads_each(1) <= cores
