from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import DatasetDict

from hf_credit import CreditConfig, CreditTrainer, ReplayLOOTrainer, VerifiableProcessTrainer, methods
from hf_credit.collaborations import Collaboration, Event
from hf_credit.collaborations.relay import relay
from hf_credit.collectors import Tree
from hf_credit.environments import make
from hf_credit.environments.tasks import tasks
from hf_credit.methods.t3 import Truncated
from hf_credit.tasks.spec import TASK_FILE, Sampling, TaskSpec
from hf_credit.trainers.recipes import read_job
from hf_credit.trainers.saving import task_spec
from hf_credit.trainers.training import build_trainer, load_rows


def problem(path: Path, *arguments: str) -> str:
    with pytest.raises((ValueError, OSError)) as error:
        read_job(["--config", str(path), *arguments])
    return str(error.value)


# Building


def spec_of(trainer: Any) -> TaskSpec:
    return task_spec(trainer.evaluation_interaction, trainer.method, trainer.args)


def played(trainer: Any) -> TaskSpec:
    """The task that the trainer saves, without its method."""
    return dataclasses.replace(spec_of(trainer), method=None)


def test_a_job_has_a_trainer_and_the_spec_for_evaluation(recipe: Callable[..., Path]) -> None:
    trainer = build_trainer(
        read_job(["--config", str(recipe(oracle="sudoku_constraints", max_turns=3)), "--use_peft", "--lora_r", "2"])
    )
    assert isinstance(trainer, VerifiableProcessTrainer)
    assert trainer.method.collector.oracle.name == "sudoku_constraints"
    assert any("lora" in name for name, _ in trainer.model.named_parameters())
    assert played(trainer) == TaskSpec(
        task="sudoku",
        task_options={"size": 4, "blanks": 4, "notation": "grid"},
        history="current",
        instructions=False,
        max_turns=3,
        sampling=Sampling(max_new_tokens=12, temperature=1.0, top_p=1.0, top_k=0),
    )


def test_a_run_builds_its_task_once(recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[TaskSpec] = []
    build = TaskSpec.build
    monkeypatch.setattr(TaskSpec, "build", lambda spec: (built.append(spec), build(spec))[1])
    job = read_job(["--config", str(recipe())])
    trainer = build_trainer(job, load_rows(job))
    assert len(built) == 1
    assert trainer.interaction is job.interaction


def test_a_collector_and_a_truncation_rule_combine_with_any_method(
    recipe: Callable[..., Path], together: Callable[..., Path]
) -> None:
    flags = ["--method", "rloo", "--collector", "tree", "--collector_options", '{"fanout": [2, 2]}']
    cut = ["--truncation", "random", "--truncation_options", '{"probability": 0.5}', "--cut", "mask"]
    trainer = build_trainer(read_job(["--config", str(recipe()), *flags, *cut, "--train_stalled", "false"]))
    assert trainer.method.collector == Tree(fanout=(2, 2))
    assert isinstance(trainer.interaction, Truncated)
    assert (trainer.interaction.cut, trainer.interaction.train_stalled) == ("mask", False)
    assert trainer.interaction.rule.probability == 0.5
    assert not isinstance(trainer.evaluation_interaction, Truncated)
    saved = spec_of(trainer)
    assert saved.build_method().collector == Tree(fanout=(2, 2))
    assert saved.build_method().wrap == trainer.method.wrap
    path = str(together(collector="group", collector_options={"size": 3}))
    assert build_trainer(read_job(["--config", path])).method.collector.size == 3  # a method with a preset trainer
    plain = build_trainer(read_job(["--config", str(recipe()), *flags[:2], *cut, "--truncation", "none"]))
    assert not isinstance(plain.interaction, Truncated)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--collector_options", '{"size": 2}'], "collector_options need a collector"),
        (["--collector_options", "2", "--collector", "group"], "collector_options must be a mapping, got '2'"),
        (["--cut", "soft"], "cut needs truncation, got 'soft' without"),
        (["--truncation", "metrics"], "did you mean 'metric'"),
        (["--truncation", "random", "--cut", "firm"], "cut must be"),
        (["--method", "rloo", "--collector", "trees"], "did you mean 'tree'"),
        (["--collector", "group"], "a collector must give what the estimator needs, verdicts"),
    ],
)
def test_a_component_that_does_not_fit_is_refused_before_a_model_is_loaded(
    recipe: Callable[..., Path], flags: list[str], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        build_trainer(read_job(["--config", str(recipe()), *flags]))


def test_prompts_that_differ_from_the_base_policys_cause_a_warning(
    recipe: Callable[..., Path], trained_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(recipe(model_name_or_path=str(trained_run), instructions=True))
    build_trainer(read_job(["--config", path]))
    assert "was trained on other prompts: instructions=True, not False" in capsys.readouterr().err
    build_trainer(read_job(["--config", path, "--instructions", "false"]))
    assert "was trained on other prompts" not in capsys.readouterr().err


def test_a_collaboration_is_trained_on_its_tasks(together: Callable[..., Path]) -> None:
    trainer = build_trainer(read_job(["--config", str(together()), "--alternatives", "4", "2"]))
    assert isinstance(trainer, ReplayLOOTrainer)
    assert trainer.method.collector.fanout == (4, 2)
    assert list(trainer.train_dataset) == list(relay(4).tasks("train", 8))
    assert played(trainer) == TaskSpec(
        task="relay",
        task_options={"size": 4, "speakers": 2},
        sampling=Sampling(max_new_tokens=12, temperature=1.0, top_p=1.0, top_k=0),
    )


def test_without_max_steps_an_epoch_has_as_many_tasks_as_asked_for(together: Callable[..., Path]) -> None:
    trainer = build_trainer(read_job(["--config", str(together(max_steps=-1, training_tasks=16))]))
    assert len(trainer.train_dataset) == 16


def test_an_environment_is_trained_with_replays(recipe: Callable[..., Path]) -> None:
    path = recipe(method="replay_loo", max_turns=2, alternatives=[2, 4])
    trainer = build_trainer(read_job(["--config", str(path)]))
    assert isinstance(trainer, ReplayLOOTrainer)
    assert (trainer.interaction.history, trainer.interaction.max_turns) == ("current", 2)
    saved = spec_of(trainer)
    assert (saved.task, saved.history, saved.max_turns) == ("sudoku", "current", 2)


def test_what_a_collaboration_lacks_is_an_error_before_a_model_is_loaded(
    together: Callable[..., Path], tmp_path: Path, micro_policy: Path
) -> None:
    def refuses(complaint: str, **changed: Any) -> None:
        path = together(task="reasoner_actor", model_name_or_path=str(micro_policy), **changed)
        with pytest.raises(ValueError, match=complaint):
            build_trainer(read_job(["--config", str(path)]))

    refuses("needs the options scorer, got domain", task_options={"domain": "math"})
    options = {"domain": "math", "scorer": "operator:eq"}
    refuses("needs a dataset of tasks, got none", task_options=options)
    (tmp_path / "rows.jsonl").write_text('{"question": "1 + 1"}\n' * 8)
    dataset = str(tmp_path / "rows.jsonl")
    refuses("got question without problem", task_options=options, dataset_name=dataset)
    unknown = {**options, "scorer": "no_such_module:score"}
    refuses("must be importable", task_options=unknown, dataset_name=dataset)


@pytest.mark.parametrize("form", ["folder", "folder of splits", "jsonl", "parquet"])
def test_task_rows_may_come_from_a_dataset(recipe: Callable[..., Path], tmp_path: Path, form: str) -> None:
    rows = tasks(make("sudoku", size=4, blanks=4), "train", size=24, start=100)
    path = tmp_path / {"jsonl": "rows.jsonl", "parquet": "rows.parquet"}.get(form, "rows")
    match form:
        case "folder":
            rows.save_to_disk(path)
        case "folder of splits":
            DatasetDict({"train": rows, "test": rows.select(range(8))}).save_to_disk(path)
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case "parquet":
            rows.to_parquet(path)
    arguments = ["--eval_strategy", "steps", "--eval_steps", "1"] if form == "folder of splits" else []
    job = read_job(["--config", str(recipe(dataset_name=str(path))), *arguments, "--per_device_eval_batch_size", "8"])
    trainer = build_trainer(job)
    assert trainer.train_dataset["puzzle"] == rows["puzzle"]
    assert len(trainer.eval_dataset or []) == (8 if arguments else 0)


def test_without_a_dataset_evaluation_during_training_plays_held_out_tasks(recipe: Callable[..., Path]) -> None:
    changed: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}
    trainer = build_trainer(read_job(["--config", str(recipe(held_out_tasks=16, **changed))]))
    assert [row["seed"] >= 2**31 for row in trainer.eval_dataset] == [True] * 16


def test_a_dataset_without_the_split_or_of_an_unknown_kind_is_refused(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    rows = tasks(make("sudoku", size=4, blanks=4), "train", size=24)
    rows.save_to_disk(tmp_path / "rows")
    job = read_job(["--config", str(recipe(dataset_name=str(tmp_path / "rows"))), "--eval_strategy", "epoch"])
    with pytest.raises(ValueError, match="must have the split 'test', got 'train'"):
        build_trainer(job)
    (tmp_path / "rows.txt").write_text("")
    with pytest.raises(ValueError, match=r"must end in \.json, \.jsonl, \.csv, \.parquet"):
        build_trainer(read_job(["--config", str(recipe(dataset_name=str(tmp_path / "rows.txt")))]))


def test_no_file_of_a_run_or_its_report_contains_a_secret(
    recipe: Callable[..., Path], command: Callable[..., Any], tmp_path: Path
) -> None:
    path = recipe(
        max_steps=1,
        hub_token="hf_secret_one",
        save_strategy="steps",
        save_steps=1,
        model_init_kwargs={"token": "hf_secret_two"},
        chat_template_kwargs={"api_key": "hf_secret_three"},
    )
    run = tmp_path / "run"
    assert command("train", path).code == 0
    played = command("evaluate", run, "--episodes", 2, "--output", run / "evaluation.json")
    assert played.code == 0, played.err
    assert command("report", run).code == 0
    written = {path.relative_to(run).as_posix(): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    files = {"config.yaml", "run.json", "training_args.bin", "checkpoint-1/training_args.bin", "report/report.md"}
    assert files <= written.keys()
    assert [name for name, content in written.items() if b"hf_secret" in content] == []


# Trained in Python


def on_a_processor(output: Path, **changed: Any) -> CreditConfig:
    small: dict[str, Any] = {"per_device_train_batch_size": 4, "max_completion_length": 12, "max_steps": 1}
    quiet: dict[str, Any] = {
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
    }
    return CreditConfig(output_dir=str(output), use_cpu=True, **small, **quiet, **changed)


def test_what_python_trains_the_command_line_evaluates(
    relay_policy: Path, command: Callable[..., Any], tmp_path: Path
) -> None:
    args = on_a_processor(tmp_path, temperature=0.5, top_k=3)
    method = methods.make("magrpo", group_size=2)
    trainer = CreditTrainer(str(relay_policy), relay(4), args, relay(4).tasks("train", 8), method=method)
    trainer.save_model()
    spec = TaskSpec.load(tmp_path)
    assert spec is not None
    assert (spec.task, spec.task_options, spec.method) == ("relay", {"size": 4, "speakers": 2}, method.spec())
    assert spec.sampling == Sampling(max_new_tokens=12, temperature=0.5, top_p=1.0, top_k=3)
    code, _, err = command("evaluate", tmp_path, "--episodes", 2)
    assert code == 0, err


def test_a_task_that_cannot_be_rebuilt_is_not_saved_with_a_warning(
    relay_policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    team = Collaboration(
        roles={"reasoner": "tell"},
        events=[Event("plan", role="reasoner")],
        final="plan",
        scorer=lambda task, text: 1.0,
    )
    args = on_a_processor(tmp_path)
    trainer = CreditTrainer(str(relay_policy), team, args, relay(4).tasks("train", 8), method="magrpo")
    trainer.save_model()
    assert not (tmp_path / TASK_FILE).exists()
    assert "must be importable by name, got" in caplog.text
    assert "define it at the top of a module" in caplog.text


def test_a_resumed_run_refuses_another_collaboration(
    together: Callable[..., Path], command: Callable[..., Any]
) -> None:
    first = together(save_strategy="steps", save_steps=1)
    assert command("train", first).code == 0
    code, _, err = command(
        "train", together(task_options={"size": 5}, resume_from_checkpoint=True, save_strategy="steps")
    )
    assert code == 1
    assert "task.task_options.size 5 in place of 4" in err
