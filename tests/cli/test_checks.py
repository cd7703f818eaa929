from __future__ import annotations

import sys
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from hf_credit.trainers.callbacks import ReportChecks
from hf_credit.verifiers.math import score


def log(report: ReportChecks, arguments: TrainingArguments) -> dict[str, Any]:
    logs: dict[str, Any] = {"reward": 1.0}
    report.on_log(arguments, TrainerState(), TrainerControl(), logs=logs)
    return logs


def test_the_log_has_the_results_of_checks_since_the_last_entry(tmp_path: Any) -> None:
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, bf16=False)
    report = ReportChecks()
    log(report, arguments)  # whatever other tests have checked
    assert log(report, arguments) == {"reward": 1.0}
    for reply in ("2", "3", "4", "no idea at all what it is"):
        score(reply, "2")
    shares = {"equal": 0.25, "different": 0.5, "no_answer": 0.25, "given_up": 0.0, "checker_failed": 0.0}
    assert log(report, arguments) == {
        "reward": 1.0,
        **{f"answers/{status}": share for status, share in shares.items()},
    }
    assert log(report, arguments) == {"reward": 1.0}


def test_checks_before_training_do_not_count(tmp_path: Any) -> None:
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, bf16=False)
    score("2", "2")  # the dry run of a trainer's construction
    report = ReportChecks()
    report.on_train_begin(arguments, TrainerState(), TrainerControl())
    assert log(report, arguments) == {"reward": 1.0}


def test_a_run_without_mathematics_logs_no_checks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hf_credit.verifiers.math")
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, bf16=False)
    assert log(ReportChecks(), arguments) == {"reward": 1.0}
    assert "hf_credit.verifiers.math" not in sys.modules
