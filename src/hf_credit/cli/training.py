"""From a recipe to a trained policy: all that `hf-credit train` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PrinterCallback, ProgressCallback
from trl import get_peft_config, get_quantization_config

from hf_credit import oracles
from hf_credit.cli.checks import ReportChecks
from hf_credit.cli.evaluate import warn_unlike
from hf_credit.cli.progress import Progress
from hf_credit.cli.recipes import METHODS, Job, load_named
from hf_credit.cli.recording import RunRecorder, ShowProgress, hardware
from hf_credit.cli.rows import TaskRows, load_rows
from hf_credit.cli.tasks import open_task
from hf_credit.evaluation.setup import GameSetup
from hf_credit.trainers.checkpoints import told_in_one_sentence


def run_job(job: Job) -> None:
    """Trains, and saves the policy, its setup and the trainer's state in `output_dir`.

    Raises:
        ValueError: a setting is not possible, in one sentence.
        OSError: the disk is full, or fails.
    """
    config = job.config()
    rows = load_rows(job)
    trainer, setup = build_trainer(job, rows)
    trainer.add_callback(ReportChecks())
    trainer.add_callback(RunRecorder(config, {**_facts(job, trainer), **rows.facts}, setup))
    for shown in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(shown)
    with Progress() as progress:
        if not job.args.disable_tqdm:
            trainer.add_callback(ShowProgress(progress))
        trainer.train(resume_from_checkpoint=_resumption(job.args.resume_from_checkpoint))
    with told_in_one_sentence(Path(job.args.output_dir)):
        # As an internal call it does not push: that comes once, below, and what the Hub refuses is not the disk's.
        trainer.save_model(job.args.output_dir, _internal_call=True)
        trainer.save_state()
        if trainer.is_world_process_zero():
            setup.save(job.args.output_dir)
    if job.args.push_to_hub:
        trainer.push_to_hub(dataset_name=job.game.dataset_name)
    # A process that leaves while the main one still saves would take the group's threads down with it.
    trainer.accelerator.wait_for_everyone()
    if hasattr(trainer, "end"):  # since transformers 5.18: closes trackers and the process group
        trainer.end()


def build_trainer(job: Job, rows: TaskRows | None = None) -> tuple[Any, GameSetup]:
    """The trainer of a job, and the setup of its task. The task and its rows are checked before a model is loaded.

    Args:
        job: the recipe.
        rows: what `load_rows` gave for it; loaded here if `None`.

    Raises:
        ValueError: something of the job is not possible, in one sentence.
    """
    game, args, model = job.game, job.args, job.model
    setup = job.setup()
    interaction = open_task(setup)
    rows = rows or load_rows(job)
    if args.process_index == 0:
        _warn_of_another_showing(setup, str(model.model_name_or_path))
    played: Any = interaction
    judge = {}
    if not METHODS[game.method].collaborations:
        played = played.environment
        options: Any = game.oracle_options or {}
        judge["oracle"] = oracles.make(game.oracle, **options) if game.oracle else None
    tokenizer = AutoTokenizer.from_pretrained(
        model.model_name_or_path,
        revision=model.model_revision,
        trust_remote_code=args.trust_remote_code,
        padding_side="left",
    )
    args.model_init_kwargs = {
        "revision": model.model_revision,
        "trust_remote_code": args.trust_remote_code,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(args.model_init_kwargs or {}),
    }
    trainer = load_named(METHODS[game.method].trainer)(
        model.model_name_or_path,
        played,
        args,
        train_dataset=rows.train,
        eval_dataset=rows.held_out,
        processing_class=tokenizer,
        quantization_config=get_quantization_config(model),
        peft_config=get_peft_config(model),
        **judge,
    )
    return trainer, setup


def _warn_of_another_showing(setup: GameSetup, model: str) -> None:
    try:
        known = GameSetup.load(model)
    except (ValueError, OSError):
        return  # training needs no note beside the model
    warn_unlike(setup, known, model)


def _facts(job: Job, trainer: Any) -> dict[str, Any]:
    """What a report needs beside the settings; with several iterations an update plays part of a generation."""
    args, parameters = job.args, list(trainer.model.parameters())
    generations = args.gradient_accumulation_steps / (args.steps_per_generation * args.num_iterations)
    return {
        "method": job.game.method,
        "processes": trainer.accelerator.num_processes,
        "hardware": hardware(),
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trained_parameters": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        "episodes_per_update": args.generation_batch_size * generations * getattr(args, "budget", 1),
        "generations_per_update": generations,
    }


def _resumption(value: str | bool | None) -> str | bool | None:
    """A checkpoint's folder, or `True` for the latest in `output_dir`, which the command line gives as text."""
    return {"true": True, "false": None}.get(str(value).lower(), value)
