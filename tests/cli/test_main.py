"""The command as a whole: `hf_credit/cli/__init__.py`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import get_session

from hf_credit import __version__
from hf_credit.cli import _in_one_sentence, _unmet, app
from hf_credit.environments import known

COMMANDS = {
    "envs",
    "methods",
    "metrics",
    "recipes",
    "play",
    "init-policy",
    "preview",
    "warm-up",
    "train",
    "evaluate",
    "diagnose",
    "credit",
    "report",
    "demo",
}


def test_every_command_has_help_with_examples(command: Callable[..., Any]) -> None:
    code, out, _ = command("--help")
    assert code == 0
    assert {entry.name or entry.callback.__name__ for entry in app.registered_commands if entry.callback} == COMMANDS
    for name in COMMANDS:
        assert name in out
        code, shown, _ = command(name, "--help")
        assert code == 0
        assert f"\n    hf-credit {name} " in shown or f"\n    hf-credit {name}\n" in shown


def test_the_version_is_shown(command: Callable[..., Any]) -> None:
    assert command("--version")[:2] == (0, f"hf-credit {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("play", "chess"),
            f"environment must be one of {', '.join(known())}, or 'module:object', got 'chess'",
        ),
        (("play", "relay"), "hf-credit play needs an environment, got the collaboration 'relay'"),
        (
            ("init-policy", "chess", "nowhere"),
            "task must be one of agent, circuit_decoding, ",
        ),
        (
            ("train", "--config", "nowhere.yaml"),
            "a recipe must be a YAML file or one of hf-credit's own, got 'nowhere.yaml'",
        ),
        (("train", "soduku_micro"), "got 'soduku_micro'; did you mean 'sudoku_micro'?"),
        (("train", "sudoku_micro", "--method", "vrp"), "got 'vrp'; did you mean 'verifiable_process'?"),
        (("train", "sudoku_micro", "--max_step", "1"), "got --max_step; did you mean 'max_steps'?"),
        (("play", "soduku"), "got 'soduku'; did you mean 'sudoku'?"),
        (("init-policy", "rellay", "nowhere"), "got 'rellay'; did you mean 'relay'?"),
        (("play", "sudoku", "--option", "size"), "an option must be name=value, got 'size'"),
        (("play", "sudoku", "--option", "sise=4"), "options size, blanks, notation, got 'sise'; did you mean 'size'?"),
        (("play", "minesweeper", "--option", "mines=25"), "mines must be a whole number from 1 to"),
        (("report", "nowhere"), "a run's folder must have metrics.jsonl"),
        (("evaluate", "nowhere"), "got 'nowhere', which is no folder, and the Hub cannot be asked"),
    ],
)
def test_an_error_that_a_user_can_fix_is_one_line(
    command: Callable[..., Any], arguments: tuple[str, ...], complaint: str
) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert complaint in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [("dance",), ("play",), ("evaluate", "x", "--episodes", "1"), ("envs", "--x")])
def test_wrong_arguments_are_rejected_with_a_hint(command: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    code, _, err = command(*arguments)
    assert code == 2
    assert "Try 'hf-credit" in err


def test_an_unreachable_hub_is_an_error_of_one_sentence() -> None:
    library = next(kind.__module__.split(".")[0] for kind in type(get_session()).__mro__ if "httpx" in kind.__module__)
    sentence = _in_one_sentence(importlib.import_module(library).ConnectError("refused"))
    assert sentence is not None
    assert sentence.startswith("the Hub must be reachable, got ConnectError (refused); connect, or name local folders")
    assert _in_one_sentence(ValueError("one sentence")) == "one sentence"
    assert _in_one_sentence(TypeError("a bug")) is None


@pytest.mark.parametrize(
    ("name", "version", "reason"),
    [
        ("trl", "1.15.0", "trl<1.17,>=1.16, got 1.15.0; install it by: pip install 'trl<1.17,>=1.16'"),
        ("uvicorn", "0.1", "uvicorn>=0.35, got 0.1; install it by: pip install 'uvicorn>=0.35'"),
    ],
)
def test_a_version_is_a_hint_behind_an_import_or_attribute_error_of_that_package_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str, reason: str
) -> None:
    module = name.replace("-", "_")
    older = tmp_path / f"{module}-{version}.dist-info"
    older.mkdir()
    (older / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    hint = f"hf-credit {__version__} needs {reason}"
    assert _in_one_sentence(ImportError("cannot import it", name=f"{module}.deep")) == f"cannot import it; {hint}"
    assert _in_one_sentence(ImportError("no module", name="other")) == "no module"
    lacking = importlib.import_module(module)
    assert _in_one_sentence(AttributeError("no such thing", obj=lacking)) is None  # with its traceback, and the hint
    assert _unmet(AttributeError("no such thing", obj=lacking)) == hint
    own = type("Own", (type("Theirs", (), {"__module__": f"{module}.base"}),), {"__module__": "elsewhere"})
    assert _unmet(AttributeError("no such thing", obj=own())) == hint
    for other in (
        MemoryError("out of memory"),
        RuntimeError("CUDA error"),
        AttributeError("x", obj=None),
        KeyError("a"),
    ):
        assert (_in_one_sentence(other), _unmet(other)) == (None, None)
    assert _in_one_sentence(ValueError("one sentence")) == "one sentence"


def test_the_option_traceback_shows_the_traceback() -> None:
    call = [sys.executable, "-m", "hf_credit.cli", "--traceback", "play", "chess"]
    environment = {name: value for name, value in os.environ.items() if name != "HF_CREDIT_TRACEBACK"}
    result = subprocess.run(call, capture_output=True, text=True, env=environment)
    assert result.returncode == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert "got 'chess'" in result.stderr
