"""Files made to hang or crash their reader end a command with an error of one sentence."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_credit.checkpoints import MANIFEST, flaw
from hf_credit.cli.options import parse_options
from hf_credit.data import load_problems
from hf_credit.tasks import TASK_FILE, TaskSpec

DEEP = "[" * 100_000 + "]" * 100_000
LONG = "1" * 5000
HALF = r'"\ud800"'
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))
HOSTILE = pytest.mark.parametrize("value", [DEEP, LONG, HALF], ids=["deep", "long", "half"])


def refused(outcome: Any) -> None:
    assert outcome.code == 1
    assert outcome.err.startswith("Error: ")
    assert len(outcome.err) < 1000
    assert "Traceback" not in outcome.err


@HOSTILE
def test_beside_a_policy(command: Callable[..., Any], tmp_path: Path, value: str) -> None:
    (tmp_path / TASK_FILE).write_text(f'{{"task": "sudoku", "task_options": {{"size": {value}}}}}')
    if value != LONG:
        refused(command("evaluate", tmp_path))
    with pytest.raises(ValueError, match="must be JSON, got"):
        TaskSpec.load(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["[1]", "1", '{"task": 3}', '{"task": "sudoku", "sampling": 3}', '{"task": "sudoku", "task_options": 3}'],
)
def test_a_spec_of_another_form(tmp_path: Path, text: str) -> None:
    (tmp_path / TASK_FILE).write_text(text)
    with pytest.raises(ValueError, match="spec must be a"):
        TaskSpec.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics.jsonl", DEEP + "\n"),
        ("metrics.jsonl", '{"step": ' + LONG + "}\n"),
        ("metrics.jsonl", "[1]\n"),
        ("metrics.jsonl", "{}\n"),
        ("trainer_state.json", "{}"),
        ("trainer_state.json", DEEP),
        ("config.yaml", BOMB),
        ("config.yaml", "- 1"),
        ("run.json", DEEP),
        ("run.json", "[]"),
        ("evaluation.json", DEEP),
        ("evaluation.json", '{"records": 3, "about": {}}'),
    ],
)
def test_in_the_folder_of_a_run(command: Callable[..., Any], tmp_path: Path, name: str, text: str) -> None:
    if name != "trainer_state.json":
        (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    (tmp_path / name).write_text(text)
    refused(command("report", tmp_path))


def test_a_recipe(command: Callable[..., Any], tmp_path: Path) -> None:
    for text in (BOMB, DEEP, "&a [*a]"):
        (tmp_path / "recipe.yaml").write_text(text)
        refused(command("train", tmp_path / "recipe.yaml"))


@HOSTILE
def test_an_option(value: str) -> None:
    with pytest.raises(ValueError, match=r"nested 100 deep at most|at most 300 digits|half of a surrogate pair"):
        parse_options([f"size={value}"])


@HOSTILE
@pytest.mark.parametrize("ending", [".json", ".jsonl", ".json.gz"])
def test_problems(tmp_path: Path, value: str, ending: str) -> None:
    row = f'{{"question": "1", "answer": {value}}}'
    text = (row if ending == ".jsonl" else f"[{row}]").encode()
    path = tmp_path / f"rows{ending}"
    path.write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    with pytest.raises(ValueError, match=r"a file of problems must be JSON in UTF-8, got .* in 'rows"):
        load_problems(f"gsm8k/test={path}")


WHOLE = {"format": 1, "resumable": True, "run": {}, "files": {}}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"files": None}, "does not list the files of a checkpoint"),
        ({"files": {"a": 3}}, "does not list the files of a checkpoint"),
        ({"files": {"../other": {"bytes": 1, "sha256": ""}}}, "does not list the files of a checkpoint"),
        ({"files": {"/etc/passwd": {"bytes": 1, "sha256": ""}}}, "does not list the files of a checkpoint"),
        ({"run": None}, "does not list the files of a checkpoint"),
        ({"resumable": None}, "does not list the files of a checkpoint"),
        ({"format": 2}, "is of another version"),
    ],
)
def test_a_manifest(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps(WHOLE))
    assert flaw(tmp_path) is None
    manifest = {name: value for name, value in {**WHOLE, **changed}.items() if value is not None}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    assert reason in str(flaw(tmp_path))


def test_a_manifest_that_is_too_deep(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(DEEP)
    assert "cannot be read (" in str(flaw(tmp_path))
