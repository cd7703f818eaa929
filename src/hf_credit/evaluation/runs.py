"""A training run as a folder of plain files: its settings, what it ran with, and what it logged."""

from __future__ import annotations

import importlib.metadata
import itertools
import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hf_credit.redaction import redacted
from hf_credit.safe_io import is_number, parse_json, parse_yaml, read_json, read_text

CONFIG_FILE = "config.yaml"
FACTS_FILE = "run.json"
LOG_FILE = "metrics.jsonl"
TRAINER_STATE_FILE = "trainer_state.json"

PACKAGES = (
    "hf-credit",
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "peft",
    "datasets",
    "huggingface-hub",
    "numpy",
    "scipy",
    "vllm",
    "bitsandbytes",
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run as its folder tells it.

    Attributes:
        name: what it is called in a report.
        config: every setting; empty where the folder has none.
        facts: `versions`, `instances_per_update`, `generations_per_update` and what else was noted; may be empty.
        log: one entry a logged step, steps ascending; each has `step`.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    log: tuple[Mapping[str, Any], ...]

    @property
    def updates(self) -> int:
        """The last step logged."""
        return int(self.log[-1]["step"])

    @property
    def episodes(self) -> float | None:
        """Scored episodes played for training, `None` where it was not noted."""
        _, scored = self.curve("budget/scoring_events")
        if scored:
            return scored[-1]
        per_update = self.facts.get("episodes_per_update")  # of an earlier release
        return None if per_update is None else per_update * self.updates

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of what was logged as `name`."""
        points = [(entry["step"], entry[name]) for entry in self.log if is_number(entry.get(name))]
        return [int(step) for step, _ in points], [float(value) for _, value in points]

    def total(self, name: str) -> float:
        """What was logged as `name`, once a generation, summed over the run.

        A logged value is the mean over the generations since the entry before it. Where a generation serves several
        steps, the first of them logs it.
        """
        steps, values = self.curve(name)
        often = self.facts.get("generations_per_update", 1)
        begun = [math.ceil(round(step * often, 6)) for step in [0, *steps]]
        return sum(
            (now - before) * value for (before, now), value in zip(itertools.pairwise(begun), values, strict=True)
        )


def read_run(folder: str | Path, name: str | None = None) -> Run:
    """The run in a folder: of `hf-credit train`, or of any trainer that saved its state there.

    Args:
        folder: holds `metrics.jsonl`, or `trainer_state.json` itself or in its checkpoints.
        name: what to call it; the folder's name if `None`.

    Raises:
        ValueError: the folder holds no log, or a file of it cannot be read.
    """
    folder = Path(folder)
    entries = _log_entries(folder)
    if not entries:
        raise ValueError(
            f"a run's folder must hold {LOG_FILE} or {TRAINER_STATE_FILE} with a logged step, got {str(folder)!r} "
            "without; name the output_dir of a run."
        )
    try:
        config = parse_yaml(_text(folder / CONFIG_FILE)) or {}
        facts = parse_json(_text(folder / FACTS_FILE) or "{}")
        if not (isinstance(config, dict) and isinstance(facts, dict)):
            raise ValueError("something else than names with values")
    except ValueError as error:
        raise ValueError(f"{CONFIG_FILE} and {FACTS_FILE} of {str(folder)!r} must be readable, got {error}.") from None
    return Run(name=name or folder.resolve().name, config=redacted(config), facts=facts, log=_by_step(entries))


def write_config(path: str | Path, values: Mapping[str, Any]) -> None:
    """Writes settings as YAML, without tokens, passwords and other secrets."""
    text = yaml.safe_dump(without_secrets(values), sort_keys=False, allow_unicode=True)
    Path(path).write_text(text, encoding="utf-8")


def without_secrets(value: Any) -> Any:
    """Plain values, as YAML and JSON have them, `redacted`."""
    value = redacted(value)
    if isinstance(value, dict):
        return {key: without_secrets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else redacted(str(value))


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """The versions of Python and of every one of some packages that is installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """The whole lines of a log that may still be written to."""
    lines = _text(Path(path)).split("\n")[:-1]
    try:
        return _entries([parse_json(line) for line in lines if line])
    except ValueError as error:
        raise ValueError(f"{path} must hold one JSON object a line, got {error}; remove the line.") from None


def _log_entries(folder: Path) -> list[dict[str, Any]]:
    if (folder / LOG_FILE).is_file():
        return read_log(folder / LOG_FILE)
    states = [folder / TRAINER_STATE_FILE, *folder.glob(f"checkpoint-*/{TRAINER_STATE_FILE}")]
    histories = [_history(path) for path in states if path.is_file()]
    return max(histories, key=lambda entries: entries[-1]["step"] if entries else 0, default=[])


def _history(path: Path) -> list[dict[str, Any]]:
    try:
        state = read_json(path)
        return _entries(state.get("log_history") if isinstance(state, dict) else None)
    except ValueError as error:
        raise ValueError(f"{path} must be the state of a trainer, got {error}; remove it.") from None


def _entries(values: Any) -> list[dict[str, Any]]:
    """What was logged, each entry with its step."""
    if not isinstance(values, list) or not all(isinstance(one, dict) and is_number(one.get("step")) for one in values):
        raise ValueError("an entry without a step")
    return values


def _by_step(entries: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """One entry a step; what was logged of it later, or again after a resumption, wins."""
    merged: dict[int, dict[str, Any]] = {}
    for entry in entries:
        merged.setdefault(int(entry["step"]), {}).update(entry)
    return tuple(merged[step] for step in sorted(merged))


def _text(path: Path) -> str:
    return read_text(path) if path.is_file() else ""
