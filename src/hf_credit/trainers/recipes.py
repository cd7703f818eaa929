"""Reads recipes: the settings of a method, its task and its model."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from trl import ModelConfig, ScriptArguments, TrlParser

from hf_credit import methods, recipes
from hf_credit.options import options_of, part_of
from hf_credit.playing import Prompts
from hf_credit.redaction import redacted_command
from hf_credit.registry import did_you_mean, find, name_and_options
from hf_credit.renamed import REMOVED, TASK_KEYS, old_names, warn_of_old_name, with_new_keys
from hf_credit.rollouts import Interaction
from hf_credit.safe_io import as_mapping
from hf_credit.tasks.spec import TaskSpec
from hf_credit.trainers.config import PromptSettings, default_of, documented
from hf_credit.trust import imported, search_here
from hf_credit.validators import one_of


class Preset(NamedTuple):
    """A method whose config has the paper's settings, and the method's options as fields.

    Attributes:
        config, trainer: the classes, as `hf_credit.trust.imported` imports them.
        served: the config of asynchronous training.
    """

    config: str
    trainer: str
    served: str = "hf_credit.trainers.asynchronous.config:AsyncCreditConfig"


def _classes(module: str, name: str, served: bool = True) -> Preset:
    preset = Preset(f"hf_credit.trainers.{module}:{name}Config", f"hf_credit.trainers.{module}:{name}Trainer")
    return preset._replace(served=f"hf_credit.trainers.asynchronous.presets:Async{name}Config") if served else preset


PRESETS = {
    "constrained_counterfactual": _classes("constrained_counterfactual", "ConstrainedCounterfactual", served=False),
    "counterfactual_grpo": _classes("counterfactual_grpo", "CounterfactualGRPO"),
    "replay_loo": _classes("replay_loo", "ReplayLOO"),
    "truncated_ppo": _classes("truncated_ppo", "TruncatedPPO", served=False),
    "verifiable_process": _classes("verifiable_process", "VerifiableProcess"),
}
"""`CreditTrainer` trains every other method, with a `CreditConfig` and the method's options in `method_options`."""

_ANY = Preset("hf_credit.trainers.config:CreditConfig", "hf_credit.trainers.credit:CreditTrainer")
_SERVED = "hf_credit.trainers.asynchronous.trainer:AsyncCreditTrainer"
TRAININGS = ("synchronous", "asynchronous")

_OLD_FIELDS = {**TASK_KEYS, "seam": "training"}
_NO_SETS: Any = ()  # `documented` makes a list of it

# Follows from steps_per_generation, and TRL takes only one of them.
_DERIVED = ("generation_batch_size",)


@dataclass
@documented
class TaskArguments(PromptSettings, ScriptArguments):
    """The settings of a recipe besides those of its config and of TRL's `ModelConfig`.

    Without a dataset the policy trains on the task's own training tasks. An environment has the fields of
    `hf_credit.playing.Prompts`, too.

    Args:
        method: the method, a name from `hf-credit methods` or `"module:factory"`.
        training: `"synchronous"`, an update plays its own episodes; or `"asynchronous"`, a vLLM server plays the next
            ones meanwhile. As for `AsyncCreditTrainer`.
        method_options: options of the method, a mapping. Those of a preset may be fields of their own, too.
        task: the environment or collaboration, a name from `hf-credit envs` or `"module:object"`. As for
            `hf_credit.make` and `hf_credit.collaborations.make`. Your own program that calls a model is the task
            `agent`, whose option `agent` names it as `module:name` or a command; it is run.
        task_options: options of the task, a mapping.
        agent: the option of the task `agent`, as the version before had it.
        oracle: verifies the actions; the environment's own oracle if `None`. As for `hf_credit.oracles.resolve`.
        oracle_options: options of the oracle, a mapping.
        role_models: models of their own for roles that are not trained, a mapping such as
            `{judge: Qwen/Qwen2.5-14B-Instruct}`, also with a sampling, or a server or a script, as for
            `hf_credit.policies.saved.load_role_models`; that of `continuations` plays them in place of the policy.
        training_tasks: tasks of an epoch, if there is no dataset and `max_steps` does not limit the run.
        held_out_tasks: tasks of an evaluation during training, if `eval_strategy` asks for one.
        problem_sets: problems to train on, in place of a dataset: NAME, NAME@REVISION or NAME=FILE. As for
            `hf_credit.data.load_problems`.
        evaluation_problem_sets: problems never to train on, near copies included: NAME, NAME@REVISION or NAME=FILE.
            An evaluation during training draws its tasks from them.
        on_overlap: `"refuse"` or `"drop"` training problems that an evaluation set has too.
        on_missing: `"refuse"` or `"drop"` problems without a gold answer or tests, or whose program cannot be read.
    """

    method: str = "verifiable_process"
    training: str = "synchronous"
    method_options: dict | str | None = None
    task: str = ""
    task_options: dict | str | None = None
    agent: str = ""
    oracle: dict | str | None = None
    oracle_options: dict | str | None = None
    role_models: dict | str | None = None
    training_tasks: int = 1024
    held_out_tasks: int = 256
    problem_sets: list[str] = _NO_SETS
    evaluation_problem_sets: list[str] = _NO_SETS
    on_overlap: str = "refuse"
    on_missing: str = "refuse"

    def __post_init__(self) -> None:
        for name in tuple(vars(self)):
            if name.endswith("_options") or name == "role_models":
                setattr(self, name, as_mapping(name, getattr(self, name)))
        if self.agent:
            warn_of_old_name("agent", "task: agent, with the option agent in task_options")
            self.task = with_new_keys({"task": self.task, "agent": "agent"}, {"agent": "task"})["task"]
            self.task_options, self.agent = {**_options(self.task_options), "agent": self.agent}, ""
        if self.oracle_options and self.oracle is None:
            raise ValueError(f"oracle_options need an oracle, got {self.oracle_options} without; name the oracle.")
        if self.oracle is not None:
            self.oracle, more = name_and_options("oracle", self.oracle)
            self.oracle_options = {**more, **_options(self.oracle_options)}
        task = self.spec()
        if self.problem_sets and (self.dataset_name or task.has_prompts()):
            raise ValueError(
                f"problem_sets replace the dataset of a collaboration, got {self.problem_sets} and "
                f"{self.dataset_name or self.task!r}; leave one of them out."
            )
        one_of("training", self.training, TRAININGS)
        if self.asynchronous and self.role_models:
            raise ValueError(
                f"role_models need training synchronous, got {sorted(self.role_models)} with asynchronous, where one "
                "server replies for every role; leave one of them out."
            )

    @property
    def asynchronous(self) -> bool:
        """Whether a server plays episodes during updates."""
        return self.training == "asynchronous"

    @property
    def preset(self) -> Preset | None:
        """The preset of the method, `None` if it has none."""
        return PRESETS.get(self.method)

    def spec(self) -> TaskSpec:
        """The task and its prompts."""
        return TaskSpec(task=self.task, task_options=_options(self.task_options), **vars(part_of(Prompts, self)))

    @property
    def verifies(self) -> bool:
        """Whether the method takes an oracle."""
        made = self.preset is None or self.method in methods.METHODS  # T3 is a trainer alone
        return made and "oracle" in options_of(methods.find(self.method))

    def described_oracle(self) -> dict[str, Any] | None:
        """The oracle, as `hf_credit.oracles.resolve` takes it."""
        return {"name": self.oracle, "options": _options(self.oracle_options)} if self.oracle else None


@dataclass(frozen=True, kw_only=True)
class Job:
    """A recipe that was read: the task, the settings of the trainer, and the model."""

    task: TaskArguments
    args: Any
    model: ModelConfig

    @cached_property
    def interaction(self) -> Interaction[Any]:
        """The Interaction of the task, built once.

        Raises:
            ValueError: the name is unknown, or an option or a setting is invalid.
        """
        return self.task.spec().build()

    def spec(self) -> TaskSpec:
        """The task and its rendering.

        Raises:
            ValueError: as for `interaction`.
        """
        rendering = {"chat_template_kwargs": self.args.chat_template_kwargs or {}, "sampling": self.args.sampling()}
        return dataclasses.replace(self.task.spec(), **rendering).complete(self.interaction)

    def method(self) -> methods.Method | None:
        """The method; `None` where the trainer of a preset makes it.

        Raises:
            ValueError: an option is invalid.
        """
        if self.task.preset is not None and not self.task.asynchronous:
            return None
        objects = {"oracle": self.task.described_oracle()} if self.task.oracle and self.task.verifies else {}
        if hasattr(self.args, "method"):
            return self.args.method(**objects)
        return methods.make(self.task.method, **_options(self.task.method_options), **objects)

    def config(self) -> dict[str, Any]:
        """All settings as plain values: a recipe for the same run."""
        values = {**asdict(self.task), **asdict(self.model), **self.args.to_dict()}
        return {name: value for name, value in values.items() if value is not None and name not in _DERIVED}


class FieldParser(TrlParser):
    """A field that several parts of a recipe have is one field, and all parts get its value. The checkpoint to resume
    from is a folder, or `True` for the latest in `output_dir`."""

    changed: Mapping[str, Any] = {}
    """Fields in place of those that were read."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        values, rest = super().parse_known_args(args, namespace)
        known, resumed = {**vars(values), **self.changed}, "resume_from_checkpoint"
        if resumed in known:
            known[resumed] = {"true": True, "false": None}.get(str(known[resumed]).lower(), known[resumed])
        return _Shared(**known), rest

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; correct it.")


class _First(argparse.ArgumentParser):
    error = FieldParser.error


def _chosen(arguments: Sequence[str]) -> tuple[dict[str, Any], str, str, list[str]]:
    """The recipe, the method, the kind of training, and the arguments without the recipe."""
    parser = _First(add_help=False, allow_abbrev=False)
    parser.add_argument("--config")
    arguments = [_with_new_flag(word) for word in arguments]
    _, others = parser.parse_known_args(arguments)
    for flag in ("--method", "--training"):
        parser.add_argument(flag)
    first, _ = parser.parse_known_args(arguments)
    recipe = recipes.read(None if first.config is None else str(recipes.find(first.config)))
    recipe = with_new_keys(recipe, _OLD_FIELDS, warn=True)
    search_here(recipe)
    method = first.method or recipe.get("method") or TaskArguments.method
    training = first.training or recipe.get("training") or TaskArguments.training
    _require_method(method, training)
    return recipe, method, training, others


def _of_method(recipe: dict[str, Any], method: str, training: str, parts: Sequence[Any]) -> list[str]:
    """Takes from a recipe what only its own method has, fields and options, and returns their names."""
    own = recipe.get("method") or TaskArguments.method
    if own == method:
        return []
    known, others = (
        {one.name for part in some for one in fields(part)} for some in (parts, [imported(_config_of(own, training))])
    )
    unused = [name for name in recipe if name in others - known]
    options = as_mapping("method_options", recipe.get("method_options"))
    taken = options_of(methods.find(getattr(parts[1], "method_name", method)))
    recipe["method_options"] = {name: value for name, value in options.items() if name in taken}
    for name in unused:
        del recipe[name]
    return unused + [name for name in options if name not in taken]


def _require_method(method: str, training: str) -> None:
    of_trainers = {name: one.trainer for name, one in PRESETS.items() if name not in methods.METHODS}
    if method in of_trainers and training == "asynchronous":
        raise ValueError(
            f"the method {method!r} needs training synchronous, got asynchronous; set method to ppo, and truncation."
        )
    find("method", {**of_trainers, **methods.METHODS}, method)


def _with_new_flag(word: str) -> str:
    if not word.startswith("--") or (new := _OLD_FIELDS.get(_field(word))) is None:
        return word
    warn_of_old_name(f"--{_field(word)}", f"--{new}")
    return "--" + new + "".join(word.partition("=")[1:])


class _Shared(argparse.Namespace):
    """Values that remain when one part has taken them."""

    def __delattr__(self, name: str) -> None:
        pass


def read_job(arguments: Sequence[str], changed: Mapping[str, Any] | None = None) -> Job:
    """Reads `--config recipe --field value ...`; the fields override those of the recipe.

    What a recipe has, and only another method than the chosen one uses, is left out and told.
    A recipe is trusted as a program is: code that it names as `module:object` may lie in the current folder.

    Args:
        arguments: of the command line. The recipe is a file, or a name as for `hf_credit.recipes.find`.
        changed: values of fields in place of those.

    Raises:
        ValueError: the recipe or a field does not exist, or a value is invalid.
        OSError: the recipe cannot be read.
    """
    recipe, method, training, arguments = _chosen(arguments)
    config = imported(_config_of(method, training))
    parts: Any = (TaskArguments, config, ModelConfig)
    parser = FieldParser(parts, allow_abbrev=False, conflict_handler="resolve")
    parser.changed = changed or {}
    unused = _of_method(recipe, method, training, parts)
    os.environ.update({name: str(value) for name, value in recipe.pop("env", {}).items()})  # as TRL does
    unknown = parser.set_defaults_with_config(**recipe)
    task, args, model, *_, typed = parser.parse_args_and_config(arguments, return_remaining_strings=True)
    unknown += typed
    if unknown:
        raise ValueError(
            f"a recipe has the fields of {type(args).__name__}, of TRL's ModelConfig and of TaskArguments, got "
            f"{flags(unknown) or redacted_command(unknown)}; {_remedy(unknown, parts)}"
        )
    if args.save_strategy == "no" and not changed and any(_field(word) == "save_steps" for word in arguments):
        raise ValueError(
            "save_steps needs save_strategy 'steps', got 'no', which saves no checkpoint; add --save_strategy steps."
        )
    if task.oracle and not task.verifies:
        if any(_field(word) == "oracle" for word in arguments):
            raise ValueError(f"the method {method} uses no oracle, got {task.oracle!r}; leave it out.")
        unused.append("oracle")
    if unused and args.process_index == 0:
        print(f"The method {method} does not use what the recipe has: {', '.join(unused)}.", file=sys.stderr)
    if model.model_name_or_path is None:
        raise ValueError("model_name_or_path must name a model, got none; add it to the recipe.")
    return Job(task=task, args=args, model=model)


def describe_fields(arguments: Sequence[str]) -> str:
    """Describes every field of a recipe with its default: ours with their help, TRL's as a list.

    Args:
        arguments: as for `read_job`; the recipe's values stand next to the defaults.

    Raises:
        ValueError: the recipe or the method does not exist.
    """
    given, method, training, _ = _chosen(arguments)
    config = imported(_config_of(method, training))
    base = next(one for one in config.__mro__ if one.__module__.startswith("trl."))
    theirs = {one.name: default_of(one) for one in dataclasses.fields(base)}

    def line(one: dataclasses.Field) -> str:
        recipe = f"{_shown(given[one.name])}, by default " if one.name in given else ""
        return f"  --{one.name} {recipe}{_shown(default_of(one))}\n      {one.metadata.get('help', '')}"

    ours = [one for one in dataclasses.fields(config) if one.name not in theirs or default_of(one) != theirs[one.name]]
    rest = [one for one in dataclasses.fields(config) if one not in ours] + list(dataclasses.fields(ModelConfig))
    listed = ", ".join(f"{one.name} {_shown(given.get(one.name, default_of(one)))}" for one in rest)
    options: list[str] = []
    if not hasattr(config, "method_name"):
        found = options_of(methods.find(method)).values()
        options = [f"\nmethod_options of {method}:", *map("  {}".format, found)]
    return "\n".join(
        [
            "What is played:",
            *map(line, dataclasses.fields(TaskArguments)),
            *options,
            f"\nOf {config.__name__}, where it is not as in TRL:",
            *map(line, ours),
            f"\nAs in TRL's {base.__name__} and ModelConfig:",
            textwrap.fill(listed, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False),
        ]
    )


def _shown(value: Any) -> str:
    return value.value if isinstance(value, Enum) else json.dumps(value, default=str)


def flags(unknown: Sequence[str]) -> str:
    """Returns the flags among unknown words, without their values, which may be secrets."""
    return " ".join(word.partition("=")[0] for word in unknown if word.startswith("--"))


def _field(word: str) -> str:
    """The field that a flag sets."""
    return word.removeprefix("--").partition("=")[0].replace("-", "_")


def _remedy(unknown: Sequence[str], parts: Any) -> str:
    synchronous = {one.name for one in dataclasses.fields(imported(_ANY.config))}
    names = [field.name for part in parts for field in dataclasses.fields(part)]
    flags = [_field(word) for word in unknown if word.startswith("--")]
    if gone := [f"{flag} is no setting any more: {REMOVED[flag]}" for flag in flags if flag in REMOVED]:
        return f"{'; '.join(gone)}."
    if elsewhere := [flag for flag in flags if flag in synchronous - set(names)]:
        return f"{', '.join(elsewhere)} need training synchronous; leave them out, or set training to synchronous."
    return " ".join(filter(None, (did_you_mean(flag, names) for flag in flags))) or "correct or remove it."


def trainer_of(method: str, training: str = TaskArguments.training) -> str:
    """The trainer class of a method, as `imported` imports it."""
    return _SERVED if training == "asynchronous" else PRESETS.get(method, _ANY).trainer


def _config_of(method: str, training: str) -> str:
    preset = PRESETS.get(method, _ANY)
    return preset.served if training == "asynchronous" else preset.config


def _options(value: Any) -> dict[str, Any]:
    return dict(value or {})


if not TYPE_CHECKING:  # which would take any name for known
    __getattr__ = old_names(__name__, {"GameArguments": "TaskArguments"})
