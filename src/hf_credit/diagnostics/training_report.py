"""What was found of the credit of training, as a folder to read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_credit.diagnostics.diagnosis_report import plain, shown
from hf_credit.diagnostics.fidelity import FidelityStatus
from hf_credit.diagnostics.training_credit import TrainingCredit, TrainingDiagnosis
from hf_credit.evaluation.report import table

MARKDOWN_FILE, NUMBERS_FILE = "training_credit.md", "training_credit.json"
_LEGEND = """\
- Fidelity: Spearman's correlation of the credit of an update with what the decisions were worth beyond the policy's
  mean at their contexts, over one pool; measured by replays that credit had no part in, or by enumeration.
- Squared error: the mean of (credit - worth)^2. Credit that was divided by a standard deviation has another unit, and
  a worth that was estimated adds the noise of its replays.
- Measured: of how many decisions with credit. Zeros: the share of credits that are 0. Variance: of the credits at one
  context, a mean over contexts.
- Intervals are 95% bootstrap intervals over task instances; they say nothing about other training runs."""


def write_training_credit(found: Sequence[TrainingDiagnosis], folder: str | Path) -> Path:
    """Writes `training_credit.md` and `training_credit.json`.

    Args:
        found: at least one.
        folder: made if it is missing; files of these names are overwritten.

    Returns:
        The path of the first.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NUMBERS_FILE).write_text(json.dumps(training_numbers(found), indent=1) + "\n", encoding="utf-8")
    path = folder / MARKDOWN_FILE
    settings = json.dumps([{"name": one.name, **one.about} for one in found], indent=1).replace("```", "'''")
    parts = [
        "# Credit of training",
        table(*training_table(found)),
        _LEGEND,
        "## Settings",
        f"```json\n{settings}\n```",
    ]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def training_numbers(found: Sequence[TrainingDiagnosis]) -> list[dict[str, Any]]:
    """Plain values that strict JSON can hold; what is not defined is `None`."""
    return [{**_fields(one), "cost": one.cost.to_dict()} for one in found]


def training_table(found: Sequence[TrainingDiagnosis]) -> tuple[list[str], list[list[str]]]:
    """Header and rows."""
    header = ["policy", "method", "event", "measured", "fidelity", "squared error", "zeros", "variance"]
    return header, [[one.name, one.method, *_cells(event)] for one in found for event in one.events]


def _cells(event: TrainingCredit) -> list[str]:
    fidelity = shown(event.fidelity)
    return [
        event.event,
        f"{event.measured} of {event.credited}",
        fidelity if event.status == FidelityStatus.OK else f"{fidelity} ({event.status})",
        shown(event.squared_error),
        f"{event.zeros:.3g}",
        f"{event.variance.within:.3g}",
    ]


def _fields(one: TrainingDiagnosis) -> Mapping[str, Any]:
    values = {field.name: getattr(one, field.name) for field in dataclasses.fields(one) if field.name != "cost"}
    values["events"] = [dataclasses.asdict(event) for event in one.events]
    found: Mapping[str, Any] = plain(values)
    return found
