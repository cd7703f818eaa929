"""Commands that are suggested to a user, as they can be typed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hf_credit.redaction import redacted
from hf_credit.rollouts import Interaction
from hf_credit.rollouts.capabilities import TaskSource
from hf_credit.rollouts.samplers import CONTINUATIONS
from hf_credit.safe_io import parse_json
from hf_credit.tasks.spec import TaskSpec


def evaluation_command(
    folder: str | Path,
    interaction: Interaction[Any] | None = None,
    dataset: str | None = None,
    split: str = "test",
    role_models: Mapping[str, Any] | None = None,
    shown: str | None = None,
) -> str:
    """Returns the `hf-credit evaluate` that plays the task of a policy, with the names that a file may not choose.

    Args:
        folder: of the policy, with its task.
        interaction: of the task; unless it makes tasks of its own, the command has a dataset.
        dataset, split: the task rows, if there are any.
        role_models: models of untrained roles, by role. An evaluation plays no continuations.
        shown: the name of the policy in the command; by default the folder.
    """
    spec = TaskSpec.load(folder)  # without secrets
    name, options = (None, {}) if spec is None else spec.to_be_typed()
    words = ["hf-credit", "evaluate", shown or str(folder), *(["--task", name] if name else [])]
    for option, value in options.items():
        words += ["--option", f"{option}={_as_text(value)}"]
    for role, other in redacted(dict(role_models or {})).items():
        words += ["--role-model", f"{role}={_as_text(other)}"] if role != CONTINUATIONS else []
    if dataset is not None and not (interaction is not None and _makes_tasks(interaction)):
        words += ["--dataset", dataset, *(["--split", split] if split != "test" else [])]
    return shlex.join(words)


def _makes_tasks(interaction: Interaction[Any]) -> bool:
    with suppress(ValueError):
        TaskSource(interaction).tasks("held_out", 256)
        return True
    return False


def _as_text(value: Any) -> str:
    """Writes a value so that the command line reads it back: JSON, or a text that is none."""
    if isinstance(value, str):
        with suppress(ValueError):
            parse_json(value)
            return json.dumps(value)
        return value
    return json.dumps(value)
