"""Trains a policy from a recipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from datasets import concatenate_datasets
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from trl import get_peft_config, get_quantization_config

from hf_credit.checkpoints import explain_disk_errors
from hf_credit.collectors.base import gives_of
from hf_credit.data import load_problems
from hf_credit.loading import refuse_adapters, require_model
from hf_credit.methods import Method
from hf_credit.model_cards import hub_id
from hf_credit.oracles import resolve
from hf_credit.policies.saved import load_role_models
from hf_credit.redaction import redacted_command
from hf_credit.rollouts import Interaction
from hf_credit.rollouts.capabilities import Oracled, TaskSource
from hf_credit.rollouts.samplers import CONTINUATIONS
from hf_credit.tasks.commands import evaluation_command
from hf_credit.tasks.rows import TaskRows, load_splits, require_split, without_evaluation
from hf_credit.tasks.spec import TaskSpec
from hf_credit.trainers.arguments import require_trackers, tokenizer_of
from hf_credit.trainers.callbacks import ReportChecks
from hf_credit.trainers.recipes import Job, TaskArguments, trainer_of
from hf_credit.trainers.recording import RunRecorder
from hf_credit.trust import imported


def run_job(job: Job, callbacks: Sequence[TrainerCallback] = ()) -> None:
    """Trains, and saves the policy, its task and the trainer's state in `output_dir`.

    Args:
        callbacks: added to those that record the run.

    Raises:
        ValueError: a setting is invalid.
        OSError: the disk is full, or fails.
    """
    config = job.config()
    rows = load_rows(job)
    trainer = build_trainer(job, rows)
    for default in (ProgressCallback, PrinterCallback, RunRecorder):
        trainer.remove_callback(default)
    trainer.add_callback(ReportChecks())
    trainer.add_callback(RunRecorder(config, {**_facts(job, trainer), **rows.facts}))
    for callback in callbacks:
        trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=job.args.resume_from_checkpoint)
    with explain_disk_errors(Path(job.args.output_dir)):
        # An internal call does not push; the push below is outside, since its errors are not those of the disk.
        trainer.save_model(job.args.output_dir, _internal_call=True)
        trainer.save_state()
    if job.args.push_to_hub:
        dataset = hub_id(job.task.dataset_name)  # the card links to it
        trainer.push_to_hub(dataset_name=dataset and dataset[0])
    # A process that exits while the main one saves would end the threads of the process group.
    trainer.accelerator.wait_for_everyone()
    if hasattr(trainer, "end"):  # since transformers 5.18: closes trackers and the process group
        trainer.end()


def build_trainer(job: Job, rows: TaskRows | None = None, method: Method | None = None, loaded: Any = None) -> Any:
    """The trainer of a job. The task, its rows and the method are checked before a model is loaded.

    Args:
        rows: the rows from `load_rows`, which is called if `None`.
        method: in place of the job's, with its settings.
        loaded: the model of another trainer of the job, with its adapters, instead of loading it again.

    Raises:
        ValueError: a setting is invalid.
    """
    task, args, model = job.task, job.args, job.model
    require_trackers(args)
    spec, interaction = job.spec(), job.interaction
    require_model(str(model.model_name_or_path), model.model_revision)
    refuse_adapters(str(model.model_name_or_path))
    rows = rows or load_rows(job)
    if args.process_index == 0 and loaded is None:
        _warn_of_other_prompts(spec, str(model.model_name_or_path))
        _warn_of_other_settings(task)
    role_models = dict(cast(dict[str, Any], task.role_models or {}))
    if method is not None and CONTINUATIONS not in gives_of(method.collector):
        role_models.pop(CONTINUATIONS, None)  # of the job's own method
    trainer_class = trainer_of(task.method if method is None else method.name, task.training)
    method = method or job.method()
    credited: dict[str, Any] = {}
    if method is not None:
        composed = args.composed(method)
        composed.bind(composed.wrapped(interaction))  # refuses what does not fit before a model is loaded
        credited["method"] = method
    if method is None and task.preset is not None and task.verifies:
        credited["oracle"] = Oracled(interaction).chosen(resolve(task.described_oracle()))
    if loaded is None:
        args.model_init_kwargs = {
            "revision": model.model_revision,
            "trust_remote_code": args.trust_remote_code,
            "dtype": model.dtype,
            **(args.model_init_kwargs or {}),
        }
    tokenizer = tokenizer_of(model.model_name_or_path, args)
    if task.asynchronous:
        if model.load_in_4bit or model.load_in_8bit:
            raise ValueError("a quantised model needs the training synchronous, got asynchronous; leave one out.")
    elif loaded is None:
        args.model_init_kwargs.setdefault("attn_implementation", model.attn_implementation)
        credited["quantization_config"] = get_quantization_config(model)
    if role_models:
        credited["samplers"] = load_role_models(
            role_models,
            interaction,
            tokenizer,
            args.max_completion_length,
            str(args.device),
            args.trust_remote_code,
        )
    return imported(trainer_class)(
        model.model_name_or_path if loaded is None else loaded,
        interaction,
        args,
        train_dataset=rows.train,
        eval_dataset=rows.held_out,
        processing_class=tokenizer,
        peft_config=get_peft_config(model) if loaded is None else None,
        **credited,
    )


def _warn_of_other_prompts(spec: TaskSpec, model: str) -> None:
    try:
        difference = spec.shown_unlike(TaskSpec.load(model), model)
    except (ValueError, OSError):
        return  # a model to train need not have a task file
    if difference is not None:
        print(f"Warning: {difference}", file=sys.stderr)


def _warn_of_other_settings(task: TaskArguments) -> None:
    """Says which settings of a paper an asynchronous training cannot have."""
    if task.asynchronous and task.preset is not None:
        from hf_credit.trainers.asynchronous.presets import impossible

        if lost := impossible(imported(task.preset.config)):
            named = ", ".join(f"{name}={value}" for name, value in lost.items())
            print(f"Warning: asynchronous training has not {named} of the paper's settings.", file=sys.stderr)


def load_rows(job: Job) -> TaskRows:
    """Loads and checks the task rows of a job.

    Raises:
        ValueError: rows do not fit the task, lack what their scorer needs, or overlap with an evaluation set.
        OSError: rows cannot be read.
    """
    task, args, spec, interaction = job.task, job.args, job.spec(), job.interaction
    evaluated = args.eval_strategy != "no"
    if evaluated and task.problem_sets and not task.evaluation_problem_sets:
        raise ValueError(
            "an evaluation during training draws its tasks from evaluation_problem_sets, got none; name a set, or set "
            "eval_strategy to 'no'."
        )
    sets, kept_out = (
        [load_problems(name, task.on_missing) for name in names]
        for names in (task.problem_sets, task.evaluation_problem_sets)
    )
    if sets:
        train, held_out, column = concatenate_datasets([problems.rows for problems in sets]), None, "problem"
        TaskSource(interaction).require_columns(train.column_names)
    else:
        train, held_out = _dataset_rows(job, interaction)
        column = str(spec.task_options.get("column", "problem"))
    rows = without_evaluation(train, kept_out, task.on_overlap, column, task.held_out_tasks, sets)
    return rows if sets and evaluated else replace(rows, held_out=held_out)


def _dataset_rows(job: Job, interaction: Interaction[Any]) -> tuple[Any, Any]:
    """Training and evaluation rows, from a dataset or the task itself; `None` without evaluation."""
    task, args = job.task, job.args
    evaluated = args.eval_strategy != "no"
    if task.dataset_name is None:
        at_once = args.generation_batch_size
        size = at_once * args.max_steps if args.max_steps > 0 else max(at_once, task.training_tasks)
        rows = TaskSource(interaction).tasks("train", size)
        return rows, TaskSource(interaction).tasks("held_out", task.held_out_tasks) if evaluated else None
    train = task.dataset_train_split
    splits = load_splits(task.dataset_name, train, task.dataset_config, task.dataset_streaming)
    wanted = [train, *([task.dataset_test_split] if evaluated else [])]
    found = [require_split(splits, split, "set dataset_train_split and dataset_test_split") for split in wanted]
    for rows in found:
        TaskSource(interaction).require_columns(rows.column_names)
    return found[0], found[1] if evaluated else None


def evaluation_of(job: Job, folder: str | Path) -> str:
    """The command that plays the task of a job with the policy that it trained: held-out tasks if there are any.

    Args:
        folder: of the policy.
    """
    task = job.task
    rows, split = next(iter([*task.evaluation_problem_sets, *task.problem_sets]), task.dataset_name), "test"
    if rows is not None and rows == task.dataset_name:
        splits = load_splits(rows, task.dataset_train_split, task.dataset_config, task.dataset_streaming)
        split = task.dataset_test_split if task.dataset_test_split in splits else task.dataset_train_split
    return evaluation_command(folder, job.interaction, rows, split, cast(dict[str, Any], task.role_models))


def _facts(job: Job, trainer: Any) -> dict[str, Any]:
    """The facts that a report needs in addition to the settings."""
    args, parameters = job.args, list(trainer.model.parameters())
    return {
        "method": job.task.method,
        "paper": dict(trainer._paper),
        "command": redacted_command(["hf-credit", *sys.argv[1:]]),
        "processes": trainer.accelerator.num_processes,
        "hardware": hardware(),
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trained_parameters": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        "instances_per_update": args.generation_batch_size if job.task.asynchronous else tasks_of_update(args),
    }


def tasks_of_update(args: Any) -> float:
    """The task rows of a synchronous update, which with several iterations uses a part of a generation."""
    slices = args.steps_per_generation * args.num_iterations
    return float(args.generation_batch_size * args.gradient_accumulation_steps / slices)


def hardware() -> str:
    """The name of the GPU, or `"CPU"`."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
