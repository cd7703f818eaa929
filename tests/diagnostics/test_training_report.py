from __future__ import annotations

import json

import pytest

from hf_credit.diagnostics.diagnosis_report import numbers, training_tables, write_training_credit
from hf_credit.diagnostics.training_credit import TrainingDiagnosis, credit_quality
from hf_credit.rollouts import Ledger

from .test_training_credit import credited


@pytest.fixture
def found() -> TrainingDiagnosis:
    decisions = [credited(1.0), credited(0.0, 1), credited(-1.0, 2)]
    return TrainingDiagnosis(
        name="runs/p",
        method="magrpo",
        events=(credit_quality("plan", decisions, [1.0, 0.5, 0.0]), credit_quality("act", [], [])),
        decisions=4,
        cost=Ledger(scoring_events=7),
        about={"seed": 3, "model": "```"},
    )


def test_a_folder_has_the_table_and_the_numbers(found, tmp_path) -> None:
    path = write_training_credit([found], tmp_path / "deep")
    text = path.read_text(encoding="utf-8")
    assert "| runs/p | magrpo | plan | 3 of 3 | 1 [" in text
    assert text.count("````") == 2  # no setting can end its block
    (values,) = json.loads((tmp_path / "deep" / "training_credit.json").read_text(encoding="utf-8"))
    assert values == json.loads(json.dumps(numbers([found])[0], allow_nan=False))
    assert values["cost"]["scoring_events"] == 7
    assert values["events"][0]["fidelity"]["mean"] == 1
    assert values["events"][1]["zeros"] is None


def test_the_table_has_a_row_for_each_event(found) -> None:
    header, rows = training_tables([found])["Credit of training"]
    assert len(header) == len(rows[0]) == len(rows[1])
    assert [row[2] for row in rows] == ["plan", "act"]
    assert rows[1][4] == "- (fewer than two candidates to compare)"
