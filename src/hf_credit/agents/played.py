"""What the process of one run does: it plays a program and its scorer, and tells how they ended."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from hf_credit.agents.program import TEMPORARY, Model

_MOST_OUTPUT = 2**26  # bytes that a command prints as its result
_MOST_TRACEBACK = 20_000  # characters
_MANY_MODULES = 50  # of a package whose import dominates the time of a run


def played(
    request: Mapping[str, Any], folder: Path, program: Callable[..., Any], scorer: Callable[..., Any] | None
) -> dict[str, Any]:
    """Plays one run in this process, and returns its outcome or exception in JSON's types.

    Args:
        request: the run, with its `task`, its `seed`, the address and keys of its model, and the `variables` of SDKs.
        folder: its own.
        program, scorer: the functions.
    """
    model = Model(
        base_url=request["base_url"],
        api_key=request["key"],
        seed=request["seed"],
        folder=folder,
        name=request["name"],
        _reward_key=request["reward_key"],
    )
    home, temporary = os.fspath(folder), os.fspath(folder / TEMPORARY)
    own_variables = {"HF_CREDIT_SEED": str(model.seed), "HF_CREDIT_FOLDER": home, "HOME": home, "TMPDIR": temporary}
    without_model = {name: os.environ.get(name) for name in request["variables"]}
    os.environ.update(request["variables"] | own_variables)
    os.chdir(folder)
    tempfile.tempdir = None  # it may know another one
    random.seed(model.seed)
    tempfile._get_candidate_names().rng.seed(model.seed)  # type: ignore[attr-defined]
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(model.seed % 2**32)
    try:
        answer = finished(program(dict(request["task"]), model))
    except BaseException as error:
        return _told("raised", error)
    for name, value in without_model.items():  # a model of the scorer's own is not the policy
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    try:
        outcome = answer if scorer is None else finished(scorer(dict(request["task"]), answer))
        if callable(getattr(outcome, "item", None)):  # of a tensor
            outcome = outcome.item()
        if not isinstance(outcome, Real) or not math.isfinite(outcome):
            rule = "a program without a scorer must return" if scorer is None else "a scorer must return"
            got = f"{repr(outcome)[:100]}, of type {type(outcome).__name__}"
            raise ValueError(f"{rule} a finite number, got {got}; return a float, or set score.")
        return {"outcome": float(outcome)}
    except BaseException as error:
        return _told("unscored", error)


def finished(result: Any) -> Any:
    """Returns a result, which a coroutine has to make first."""
    if inspect.isawaitable(result):
        import asyncio  # which the program has imported, most likely

        async def wait() -> Any:
            return await result

        return asyncio.run(wait())
    if inspect.isasyncgen(result):
        raise TypeError("a program, score and close must return, got the async_generator of a yield; return a value.")
    return result


def _told(what: str, error: BaseException) -> dict[str, Any]:
    """Describes an exception, whose text may have any length."""
    text = "".join(traceback.format_exception(error))
    if len(text) > _MOST_TRACEBACK:
        text = f"{text[: _MOST_TRACEBACK // 2]}\n[...]\n{text[-_MOST_TRACEBACK // 2 :]}"
    return {what: "".join(traceback.format_exception_only(error)).strip()[:500], "traceback": text}


def large_packages(modules: Collection[str], known: Collection[str]) -> list[str]:
    """Returns the packages with many of these modules; of a known package, the packages within it."""
    counts = Counter(".".join(name.split(".")[: 1 + (name.partition(".")[0] in known)]) for name in modules)
    return sorted(name for name, count in counts.items() if count >= _MANY_MODULES)


def run_command(command: list[str], scored: bool, task: Mapping[str, Any], model: Model) -> Any:
    """Returns the output of a command for a task on its standard input; without a scorer as a number if it is one."""
    with tempfile.TemporaryFile() as printed:
        done = subprocess.run(command, input=json.dumps(task).encode(), stdout=printed)
        if done.returncode:
            raise RuntimeError(f"the command ended with exit code {done.returncode}")
        if printed.seek(0, os.SEEK_END) > _MOST_OUTPUT:
            raise RuntimeError(f"the result of a command must have at most {_MOST_OUTPUT} bytes; print less.")
        printed.seek(0)
        output = printed.read().decode()
    if not scored:
        with contextlib.suppress(ValueError):
            return float(output)
    return output.strip()
