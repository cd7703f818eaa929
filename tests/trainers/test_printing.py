"""A script's log is short; all of it is kept."""

from __future__ import annotations

from transformers import TrainerControl, TrainerState, TrainingArguments

from hf_credit.trainers.callbacks import BriefPrinter, headlines

LOGS = {"kl": 0.5, "reward": 0.25, "loss": 1.0, "roles/a/advantages/zero": 0.5, "advantages/zero": 0.75, "epoch": 1}


def test_headlines_are_few_and_in_one_order():
    assert list(headlines(LOGS).items()) == [("loss", 1.0), ("reward", 0.25), ("advantages/zero", 0.75)]
    assert headlines({"eval_hard_reward": 1.0, "eval_kl": 2.0, "success": True}) == {"eval_hard_reward": 1.0}
    assert headlines({"train_runtime": 2.0, "train_loss": 1.0, "total_flos": 3.0}).keys() >= {
        "train_runtime",
        "train_loss",
    }


def test_a_failing_task_is_a_headline_and_one_that_does_not_fail_is_none():
    assert headlines({"endings/error": 0.5}) == {"endings/error": 0.5}
    assert headlines({"endings/error": 0.0}) == {}


def test_a_script_prints_headlines(tmp_path, capsys):
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    BriefPrinter().on_log(args, TrainerState(is_local_process_zero=True), TrainerControl(), logs=dict(LOGS))
    assert capsys.readouterr().out == "{'loss': '1', 'reward': '0.25', 'advantages/zero': '0.75'}\n"
