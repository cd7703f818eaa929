"""Training runs as folders of plain files: settings, versions and logs."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hf_credit.files import write
from hf_credit.redaction import redacted, without_secrets
from hf_credit.safe_io import is_number, lines_of, parse_json, parse_yaml, read_json, read_text

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
    """A training run, read from its folder.

    Attributes:
        name: its name in reports.
        config: all settings; empty if the folder has none.
        facts: `versions`, `instances_per_update` and other facts; may be empty.
        log: one entry per logged step, in ascending order; each has `step`.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    log: tuple[Mapping[str, Any], ...]

    @property
    def updates(self) -> int:
        """The last logged step."""
        return int(self.log[-1]["step"])

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """Returns the steps and values of the quantity logged as `name`."""
        points = [(entry["step"], entry[name]) for entry in self.log if is_number(entry.get(name))]
        return [int(step) for step, _ in points], [float(value) for _, value in points]

    def last(self, name: str) -> float | None:
        """Returns the last value of the quantity logged as `name`; `None` if it was not logged."""
        return next(reversed(self.curve(name)[1]), None)


def read_run(folder: str | Path, name: str | None = None) -> Run:
    """Reads a run from its folder, of `hf-credit train` or of any trainer that saved its state there.

    Args:
        folder: with `metrics.jsonl`, or with `trainer_state.json` in itself or in its checkpoints.
        name: the name of the run; by default that of the folder.

    Raises:
        ValueError: the folder has no log, or a file cannot be read.
    """
    folder = Path(folder)
    entries = _log_entries(folder)
    if not entries:
        raise ValueError(
            f"a run's folder must have {LOG_FILE} or {TRAINER_STATE_FILE} with a logged step, got {str(folder)!r} "
            "without; name the output_dir of a run."
        )
    try:
        config = parse_yaml(_text(folder / CONFIG_FILE)) or {}
        facts = parse_json(_text(folder / FACTS_FILE) or "{}")
        if not (isinstance(config, dict) and isinstance(facts, dict)):
            raise ValueError("another type than a mapping")
    except ValueError as error:
        raise ValueError(f"{CONFIG_FILE} and {FACTS_FILE} of {str(folder)!r} must be readable, got {error}.") from None
    merged: dict[int, dict[str, Any]] = {}
    for entry in entries:  # later ones of a step, such as after a resumption, override earlier ones
        merged.setdefault(int(entry["step"]), {}).update(entry)
    log = tuple(merged[step] for step in sorted(merged))
    return Run(name=name or folder.resolve().name, config=redacted(config), facts=facts, log=log)


def has_log(folder: str | Path) -> bool:
    """Whether a folder has a log with a step.

    Raises:
        ValueError: a log cannot be read.
    """
    return bool(_log_entries(Path(folder)))


def read_facts(folder: str | Path) -> dict[str, Any]:
    """Reads the facts of a run, such as its command; none if they are not recorded."""
    facts = parse_json(_text(Path(folder) / FACTS_FILE) or "{}")
    return facts if isinstance(facts, dict) else {}


def write_config(path: str | Path, values: Mapping[str, Any]) -> None:
    """Writes settings as YAML, without tokens, passwords and other secrets."""
    write(path, yaml.safe_dump(without_secrets(values), sort_keys=False, allow_unicode=True))


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Returns the versions of Python and of the installed packages of a list."""
    found = {"python": platform.python_version()}
    for package in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """Reads the complete lines of a log, to which a run may still write."""
    lines = lines_of(path) if Path(path).is_file() else iter(())
    try:
        return _entries([parse_json(line) for line in lines if line.endswith("\n") and line != "\n"])
    except ValueError as error:
        raise ValueError(f"{path} must have one JSON object per line, got {error}; remove the line.") from None


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
    """Checks that values are log entries with a step."""
    if not isinstance(values, list) or not all(isinstance(one, dict) and is_number(one.get("step")) for one in values):
        raise ValueError("an entry without a step")
    return values


def _text(path: Path) -> str:
    return read_text(path) if path.is_file() else ""
