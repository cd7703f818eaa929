"""From a recipe to a trained policy: all that `hf-credit train` does."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict, load_dataset, load_from_disk
from transformers import AutoTokenizer, PrinterCallback, ProgressCallback
from trl import ModelConfig, ScriptArguments, TrlParser, get_peft_config, get_quantization_config

from hf_credit import oracles
from hf_credit.cli.progress import Progress
from hf_credit.cli.recording import RunRecorder, ShowProgress, hardware
from hf_credit.environments import Environment, make
from hf_credit.environments.tasks import tasks
from hf_credit.evaluation.setup import GameSetup, Sampling, environment_options
from hf_credit.trainers.checkpoints import told_in_one_sentence

METHODS = {
    "verifiable_process": (
        "hf_credit.trainers.verifiable_process:VerifiableProcessConfig",
        "hf_credit.trainers.verifiable_process:VerifiableProcessTrainer",
    ),
}
"""The config and the trainer of each method, imported when it is chosen."""

_FILES = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
# Follows from steps_per_generation, and TRL wants only one of them.
_DERIVED = ("generation_batch_size",)


@dataclass
class GameArguments(ScriptArguments):
    """What a recipe says beside TRL's own settings. Without a dataset the environment's own training tasks are played.

    Args:
        method: one of `METHODS`.
        environment: what is played, as for `hf_credit.make`.
        environment_options: its options, a mapping.
        oracle: who verifies, as for `hf_credit.oracles.make`; the environment's own if `None`.
        oracle_options: the oracle's options, a mapping.
        held_out_tasks: tasks of an evaluation during training, where `eval_strategy` asks for one.
    """

    method: str = field(default="verifiable_process", metadata={"help": f"One of {', '.join(METHODS)}."})
    environment: str = field(default="", metadata={"help": "What is played; see hf-credit envs."})
    environment_options: dict | str | None = field(default=None, metadata={"help": "Its options, a mapping."})
    oracle: str | None = field(default=None, metadata={"help": "Who verifies; the environment's own by default."})
    oracle_options: dict | str | None = field(default=None, metadata={"help": "The oracle's options, a mapping."})
    held_out_tasks: int = field(default=256, metadata={"help": "Tasks of an evaluation during training."})

    def __post_init__(self) -> None:
        self.environment_options = _mapping("environment_options", self.environment_options)
        self.oracle_options = _mapping("oracle_options", self.oracle_options)
        if self.oracle_options and self.oracle is None:
            raise ValueError(f"oracle_options need an oracle, got {self.oracle_options} without; name the oracle.")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A recipe, read: what to play, how to train, and which model."""

    game: GameArguments
    args: Any
    model: ModelConfig

    def config(self) -> dict[str, Any]:
        """Every setting as plain values: a recipe for the same run."""
        values = {**asdict(self.game), **asdict(self.model), **self.args.to_dict()}
        return {name: value for name, value in values.items() if value is not None and name not in _DERIVED}


class _Parser(TrlParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; correct it.")


def read_job(arguments: Sequence[str]) -> Job:
    """Reads `--config recipe.yaml --field value ...`; what is given behind the recipe wins.

    Raises:
        ValueError: a field or its value is not possible.
        OSError: the recipe cannot be read.
    """
    chosen = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    chosen.add_argument("--config")
    chosen.add_argument("--method")
    first, _ = chosen.parse_known_args(arguments)
    method = first.method or _method_of(first.config) or GameArguments.method
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}; pick one of these.")
    parts: Any = (GameArguments, _load(METHODS[method][0]), ModelConfig)
    parser = _Parser(parts, allow_abbrev=False)
    game, args, model, unknown = parser.parse_args_and_config(list(arguments), return_remaining_strings=True)
    if unknown:
        raise ValueError(
            f"a recipe has the fields of {type(args).__name__}, of TRL's ModelConfig and of GameArguments, got "
            f"{' '.join(unknown)}; correct or remove it."
        )
    if model.model_name_or_path is None:
        raise ValueError("model_name_or_path must name a model, got none; add it to the recipe.")
    return Job(game=game, args=args, model=model)


def run_job(job: Job) -> None:
    """Trains, and saves the policy, its setup and the trainer's state in `output_dir`.

    Raises:
        ValueError: a setting is not possible, in one sentence.
        OSError: the disk is full, or fails.
    """
    config = job.config()
    trainer, setup = build_trainer(job)
    trainer.add_callback(RunRecorder(config, _facts(job, trainer), setup))
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
    if hasattr(trainer, "end"):  # since transformers 5.18: closes trackers and the process group
        trainer.end()


def build_trainer(job: Job) -> tuple[Any, GameSetup]:
    """The trainer of a job, and the setup of its game."""
    game, args, model = job.game, job.args, job.model
    environment = make(game.environment, **_options(game.environment_options))
    oracle = oracles.make(game.oracle, **_options(game.oracle_options)) if game.oracle else None
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
    train_dataset, eval_dataset = _datasets(game, environment, evaluated=args.eval_strategy != "no")
    trainer = _load(METHODS[game.method][1])(
        model.model_name_or_path,
        environment,
        args,
        train_dataset=train_dataset,
        oracle=oracle,
        eval_dataset=eval_dataset,
        processing_class=tokenizer,
        quantization_config=get_quantization_config(model),
        peft_config=get_peft_config(model),
    )
    return trainer, GameSetup(
        environment=game.environment,
        environment_options=environment_options(environment),
        history=args.history,
        instructions=args.instructions,
        max_turns=args.max_turns,
        chat_template_kwargs=args.chat_template_kwargs or {},
        sampling=Sampling(
            max_new_tokens=args.max_completion_length,
            temperature=args.temperature,
            top_p=args.top_p,
            top_k=args.top_k,
        ),
    )


def _datasets(
    game: GameArguments, environment: Environment[Any], evaluated: bool
) -> tuple[Dataset | IterableDataset | None, Dataset | IterableDataset | None]:
    """Task rows to train on, `None` for the environment's own, and to evaluate on, `None` where nobody does."""
    if game.dataset_name is None:
        held_out = tasks(environment, "held_out", size=game.held_out_tasks, lazy=True) if evaluated else None
        return None, held_out
    loaded = _loaded(game)
    if not isinstance(loaded, DatasetDict | IterableDatasetDict):
        loaded = {game.dataset_train_split: loaded}
    for split in (game.dataset_train_split, *([game.dataset_test_split] if evaluated else [])):
        if split not in loaded:
            raise ValueError(
                f"the dataset must have the split {split!r}, got {', '.join(map(repr, loaded))}; set "
                "dataset_train_split and dataset_test_split."
            )
    return loaded[game.dataset_train_split], loaded[game.dataset_test_split] if evaluated else None


def _loaded(game: GameArguments) -> Any:
    path = Path(game.dataset_name or "")
    if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
        return load_from_disk(str(path))
    if path.is_file():
        if path.suffix not in _FILES:
            raise ValueError(f"a dataset's file must end in {', '.join(_FILES)}, got {str(path)!r}; convert it.")
        files = {game.dataset_train_split: str(path)}
        return load_dataset(_FILES[path.suffix], data_files=files, streaming=game.dataset_streaming)
    return load_dataset(str(game.dataset_name), name=game.dataset_config, streaming=game.dataset_streaming)


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
        "episodes_per_update": args.generation_batch_size * generations,
        "generations_per_update": generations,
    }


def _load(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _method_of(recipe: str | None) -> str | None:
    if recipe is None:
        return None
    try:
        values = yaml.safe_load(Path(recipe).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"a recipe must be YAML, got {recipe!r} ({error}); correct it.") from None
    if not isinstance(values, dict):
        raise ValueError(f"a recipe must be a YAML mapping of fields to values, got {recipe!r} without; correct it.")
    return values.get("method")


def _mapping(name: str, value: dict | str | None) -> dict[str, Any]:
    try:
        read = json.loads(value) if isinstance(value, str) else value or {}
    except json.JSONDecodeError:
        read = value
    if not isinstance(read, dict):
        raise ValueError(f"{name} must be a mapping, got {value!r}; write for example '{{\"size\": 4}}'.")
    return read


def _options(value: Any) -> dict[str, Any]:
    return dict(value or {})


def _resumption(value: str | bool | None) -> str | bool | None:
    """A checkpoint's folder, or `True` for the latest in `output_dir`, which the command line gives as text."""
    return {"true": True, "false": None}.get(str(value).lower(), value)
