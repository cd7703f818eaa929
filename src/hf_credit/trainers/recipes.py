"""A recipe, read: the settings of a method, what it plays, and the model."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

from trl import ModelConfig, ScriptArguments, TrlParser

from hf_credit import methods, recipes
from hf_credit.redaction import redacted_command
from hf_credit.registry import did_you_mean, search_here
from hf_credit.rollouts import Interaction
from hf_credit.safe_io import parse_yaml, read_text
from hf_credit.tasks.spec import TaskSpec, agent_named, require_one_task
from hf_credit.trainers.config import as_mapping


class Preset(NamedTuple):
    """A method with a trainer of its own, whose config has the method's options as fields.

    Attributes:
        config, trainer: its classes, imported when it is chosen.
        oracle: whether the trainer takes one.
    """

    config: str
    trainer: str
    oracle: bool = False


PRESETS = {
    "constrained_counterfactual": Preset(
        "hf_credit.trainers.constrained_counterfactual:ConstrainedCounterfactualConfig",
        "hf_credit.trainers.constrained_counterfactual:ConstrainedCounterfactualTrainer",
    ),
    "counterfactual_grpo": Preset(
        "hf_credit.trainers.counterfactual_grpo:CounterfactualGRPOConfig",
        "hf_credit.trainers.counterfactual_grpo:CounterfactualGRPOTrainer",
    ),
    "replay_loo": Preset(
        "hf_credit.trainers.replay_loo:ReplayLOOConfig",
        "hf_credit.trainers.replay_loo:ReplayLOOTrainer",
    ),
    "truncated_ppo": Preset(
        "hf_credit.trainers.truncated_ppo:TruncatedPPOConfig",
        "hf_credit.trainers.truncated_ppo:TruncatedPPOTrainer",
    ),
    "verifiable_process": Preset(
        "hf_credit.trainers.verifiable_process:VerifiableProcessConfig",
        "hf_credit.trainers.verifiable_process:VerifiableProcessTrainer",
        oracle=True,
    ),
}
"""Every other method is trained by `CreditTrainer` with a `CreditConfig`, and has its options in `method_options`."""

_ANY = Preset("hf_credit.trainers.config:CreditConfig", "hf_credit.trainers.credit:CreditTrainer")
_ASYNCHRONOUS = Preset(
    "hf_credit.trainers.asynchronous.config:AsyncCreditConfig",
    "hf_credit.trainers.asynchronous.trainer:AsyncCreditTrainer",
)
SEAMS = ("synchronous", "asynchronous")

# Follows from steps_per_generation, and TRL wants only one of them.
_DERIVED = ("generation_batch_size",)


@dataclass
class GameArguments(ScriptArguments):
    """What a recipe says beside TRL's own settings. Without a dataset the task's own training tasks are played.

    Args:
        method: one of `hf_credit.methods.known()`, or `"module:factory"`.
        seam: `synchronous`, an update plays its own episodes; or `asynchronous`, a vLLM server plays the next ones
            meanwhile, as for `AsyncCreditTrainer`.
        method_options: its options, a mapping; those of a preset are fields of their own instead, where the seam is
            synchronous.
        environment: the environment that is played, as for `hf_credit.make`.
        environment_options: its options, a mapping.
        collaboration: or the collaboration, as for `hf_credit.collaborations.make`.
        collaboration_options: its options, a mapping.
        agent: or a program that calls a model, as `module:name`, or a command: short for the collaboration `agent`
            with this option; its other settings are `collaboration_options`.
        history, instructions, max_turns: of an environment, as for `EnvironmentInteraction`.
        oracle: who verifies, as for `hf_credit.oracles.make`; the environment's own if `None`.
        oracle_options: the oracle's options, a mapping.
        role_models: models with weights of their own for roles that nothing is learned from, such as
            `{judge: Qwen/Qwen2.5-14B-Instruct}`; a mapping, as for `hf_credit.policies.saved.load_role_models`.
        training_tasks: tasks of an epoch, where there is no dataset and `max_steps` does not say how many are played.
        held_out_tasks: tasks of an evaluation during training, where `eval_strategy` asks for one.
        problem_sets: problems that are trained on, in place of a dataset, each as for `hf_credit.data.load_problems`.
        evaluation_problem_sets: problems that must not be trained on, near copies included; an evaluation during
            training draws its tasks from them.
        on_overlap: `refuse` or `drop` training problems that an evaluation set has too.
        on_missing: `refuse` or `drop` problems without a gold answer or tests.
    """

    method: str = field(default="verifiable_process", metadata={"help": "A method's name, or module:factory."})
    seam: str = field(default="synchronous", metadata={"help": "asynchronous: a server plays while training goes on."})
    method_options: dict | str | None = field(default=None, metadata={"help": "The method's options, a mapping."})
    environment: str = field(default="", metadata={"help": "What is played; see hf-credit envs, or module:Class."})
    environment_options: dict | str | None = field(default=None, metadata={"help": "Its options, a mapping."})
    collaboration: str = field(default="", metadata={"help": "Or the collaboration; the same, or module:factory."})
    collaboration_options: dict | str | None = field(default=None, metadata={"help": "Its options, a mapping."})
    agent: str = field(default="", metadata={"help": "Or your program, as module:name, or a command; it is run."})
    history: str = field(default="append", metadata={"help": "append: all turns in view; current: the last one."})
    instructions: bool = field(default=True, metadata={"help": "Whether prompts open with the instructions."})
    max_turns: int | None = field(default=None, metadata={"help": "Most actions of an episode."})
    oracle: str | None = field(default=None, metadata={"help": "Who verifies; the environment's own by default."})
    oracle_options: dict | str | None = field(default=None, metadata={"help": "The oracle's options, a mapping."})
    role_models: dict | str | None = field(default=None, metadata={"help": "Models of untrained roles, a mapping."})
    training_tasks: int = field(default=1024, metadata={"help": "Tasks of an epoch without a dataset."})
    held_out_tasks: int = field(default=256, metadata={"help": "Tasks of an evaluation during training."})
    problem_sets: list[str] = field(default_factory=list, metadata={"help": "NAME, NAME@REVISION or NAME=FILE."})
    evaluation_problem_sets: list[str] = field(default_factory=list, metadata={"help": "Never trained on; the same."})
    on_overlap: str = field(default="refuse", metadata={"help": "Refuse or drop problems of an evaluation set."})
    on_missing: str = field(default="refuse", metadata={"help": "Refuse or drop problems without an answer or tests."})

    def __post_init__(self) -> None:
        for name in (
            "method_options",
            "environment_options",
            "collaboration_options",
            "oracle_options",
            "role_models",
        ):
            setattr(self, name, as_mapping(name, getattr(self, name)))
        if self.agent:
            if self.collaboration not in ("", "agent"):
                raise ValueError(
                    f"an agent takes the place of a collaboration, got {self.agent!r} beside {self.collaboration!r}; "
                    "leave one of them out."
                )
            self.collaboration = "agent"
            self.collaboration_options = {**_options(self.collaboration_options), "agent": agent_named(self.agent)}
        if self.oracle_options and self.oracle is None:
            raise ValueError(f"oracle_options need an oracle, got {self.oracle_options} without; name the oracle.")
        require_one_task(
            self.environment,
            _options(self.environment_options),
            self.collaboration,
            _options(self.collaboration_options),
        )
        if self.problem_sets and (self.dataset_name or self.environment):
            raise ValueError(
                f"problem_sets take the place of a dataset and are for collaborations, got {self.problem_sets} beside "
                f"{self.dataset_name or self.environment!r}; leave one of them out."
            )
        if self.seam not in SEAMS:
            raise ValueError(f"seam must be {' or '.join(map(repr, SEAMS))}, got {self.seam!r}; pick one.")
        if self.asynchronous and self.role_models:
            raise ValueError(
                f"role_models need the seam synchronous, got {sorted(self.role_models)} with asynchronous, where one "
                "server speaks for every role; leave one of them out."
            )
        if self.preset is not None:
            if self.method_options:
                raise ValueError(
                    f"the options of {self.method!r} are fields of their own, got method_options "
                    f"{self.method_options}; write them beside method."
                )
            if self.oracle and not self.preset.oracle:
                raise ValueError(f"the method {self.method} asks no oracle, got {self.oracle!r}; leave it out.")

    @property
    def asynchronous(self) -> bool:
        """Whether a server plays while training goes on."""
        return self.seam == "asynchronous"

    @property
    def preset(self) -> Preset | None:
        """The preset of the method, whose trainer makes it."""
        return None if self.asynchronous else PRESETS.get(self.method)

    def described_oracle(self) -> dict[str, Any] | None:
        """The oracle as `hf_credit.oracles.resolve` takes it."""
        return {"name": self.oracle, "options": _options(self.oracle_options)} if self.oracle else None


@dataclass(frozen=True, kw_only=True)
class Job:
    """A recipe, read: what to play, how to train, and which model."""

    game: GameArguments
    args: Any
    model: ModelConfig

    @cached_property
    def interaction(self) -> Interaction[Any]:
        """What is played, built once.

        Raises:
            ValueError: the name, an option or a setting is not possible.
        """
        return self._spec().build()

    def spec(self) -> TaskSpec:
        """The task, and how it is shown.

        Raises:
            ValueError: as for `interaction`.
        """
        return self._spec().complete(self.interaction)

    def _spec(self) -> TaskSpec:
        game, args = self.game, self.args
        return TaskSpec(
            environment=game.environment or None,
            environment_options=_options(game.environment_options),
            collaboration=game.collaboration or None,
            collaboration_options=_options(game.collaboration_options),
            history=game.history,
            instructions=game.instructions,
            max_turns=game.max_turns,
            chat_template_kwargs=args.chat_template_kwargs or {},
            sampling=args.sampling(),
        )

    def method(self) -> methods.Method | None:
        """The method, `None` of a preset, whose trainer makes it.

        Raises:
            ValueError: the method does not take the oracle, or an option is not possible.
        """
        if self.game.preset is not None:
            return None
        options = _options(self.game.method_options)
        oracle = self.game.described_oracle()
        if oracle is not None:
            options["oracle"] = oracle
        return methods.make(self.game.method, **options)

    def config(self) -> dict[str, Any]:
        """Every setting as plain values: a recipe for the same run."""
        values = {**asdict(self.game), **asdict(self.model), **self.args.to_dict()}
        return {name: value for name, value in values.items() if value is not None and name not in _DERIVED}


class _Parser(TrlParser):
    """Where several parts of a recipe have a field, it is one field, and all of them are given its value."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        values, rest = super().parse_known_args(args, namespace)
        return _Shared(**vars(values)), rest

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; correct it.")


def _chosen(arguments: Sequence[str]) -> tuple[str | None, str, str, list[str]]:
    """The recipe's file, the method, the seam, and the arguments with the file in place of the recipe's name."""
    chosen = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    chosen.add_argument("--config")
    chosen.add_argument("--method")
    chosen.add_argument("--seam")
    first, _ = chosen.parse_known_args(arguments)
    path = None if first.config is None else str(recipes.find(first.config))
    recipe = _read(path)
    search_here(recipe)
    method = first.method or recipe.get("method") or GameArguments.method
    if method not in PRESETS:
        methods.find(method)
    seam = first.seam or recipe.get("seam") or GameArguments.seam
    return path, method, seam, [path if path and word == first.config else word for word in arguments]


class _Shared(argparse.Namespace):
    """Values that stay when one part has taken them."""

    def __delattr__(self, name: str) -> None:
        pass


def read_job(arguments: Sequence[str]) -> Job:
    """Reads `--config recipe --field value ...`; what is given behind the recipe wins.

    A recipe is the user's own, as a program is: code that it names as `module:object` may lie in the current folder.

    Args:
        arguments: the recipe is a file, or named as for `hf_credit.recipes.find`.

    Raises:
        ValueError: there is no such recipe, or a field or its value is not possible.
        OSError: the recipe cannot be read.
    """
    _, method, seam, arguments = _chosen(arguments)
    config = load_named(_trained_by(method, seam).config)
    parts: Any = (GameArguments, config, ModelConfig)
    parser = _Parser(parts, allow_abbrev=False, conflict_handler="resolve")
    game, args, model, *_, unknown = parser.parse_args_and_config(list(arguments), return_remaining_strings=True)
    if unknown:
        raise ValueError(
            f"a recipe has the fields of {type(args).__name__}, of TRL's ModelConfig and of GameArguments, got "
            f"{_flags(unknown) or redacted_command(unknown)}; {_meant(unknown, parts)}"
        )
    if args.save_strategy == "no" and any(word.partition("=")[0] == "--save_steps" for word in arguments):
        raise ValueError(
            "save_steps needs save_strategy 'steps', got 'no', which saves no checkpoint; add --save_strategy steps."
        )
    if model.model_name_or_path is None:
        raise ValueError("model_name_or_path must name a model, got none; add it to the recipe.")
    return Job(game=game, args=args, model=model)


def describe_fields(arguments: Sequence[str]) -> str:
    """Every field that a recipe may have, with its default, as text: ours in a line each, TRL's as a list.

    Args:
        arguments: as for `read_job`; a recipe's own values are shown beside the defaults.

    Raises:
        ValueError: there is no such recipe or method.
    """
    path, method, seam, _ = _chosen(arguments)
    own = {} if path is None else parse_yaml(read_text(path))
    config = load_named(_trained_by(method, seam).config)
    base = next(one for one in config.__mro__ if one.__module__.startswith("trl."))
    theirs = {one.name: one for one in dataclasses.fields(base)}

    def line(one: dataclasses.Field) -> str:
        recipe = f"{_shown(own[one.name])}, by default " if one.name in own else ""
        return f"  --{one.name} {recipe}{_shown(_default(one))}\n      {one.metadata.get('help', '')}"

    ours = [one for one in dataclasses.fields(config) if _changed(one, theirs.get(one.name))]
    rest = [one for one in dataclasses.fields(config) if one not in ours] + list(dataclasses.fields(ModelConfig))
    listed = ", ".join(f"{one.name} {_shown(own.get(one.name, _default(one)))}" for one in rest)
    return "\n".join(
        [
            "What is played:",
            *map(line, dataclasses.fields(GameArguments)),
            *(
                []
                if "method_options" in dir(config)
                else [f"\nmethod_options of {method}:", *_options_of(methods.find(method))]
            ),
            f"\nOf {config.__name__}, where it is not as in TRL:",
            *map(line, ours),
            f"\nAs in TRL's {base.__name__} and ModelConfig:",
            textwrap.fill(listed, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False),
        ]
    )


def _options_of(factory: Callable[..., Any]) -> list[str]:
    return [f"  {name} {_shown(one.default)}" for name, one in inspect.signature(factory).parameters.items()]


def _default(one: dataclasses.Field) -> Any:
    return one.default if one.default_factory is dataclasses.MISSING else one.default_factory()


def _changed(one: dataclasses.Field, theirs: dataclasses.Field | None) -> bool:
    return theirs is None or _default(one) != _default(theirs)


def _shown(value: Any) -> str:
    return value.value if isinstance(value, Enum) else json.dumps(value, default=str)


def _flags(unknown: Sequence[str]) -> str:
    """The unknown flags without their values, which may be secrets."""
    return " ".join(word.partition("=")[0] for word in unknown if word.startswith("--"))


def _meant(unknown: Sequence[str], parts: Any) -> str:
    """What to do about flags that nobody knows."""
    synchronous = {one.name for one in dataclasses.fields(load_named(_ANY.config))}
    names = [field.name for part in parts for field in dataclasses.fields(part)]
    flags = [word.removeprefix("--").partition("=")[0].replace("-", "_") for word in unknown if word.startswith("--")]
    if elsewhere := [flag for flag in flags if flag in synchronous - set(names)]:
        return f"{', '.join(elsewhere)} go with the seam synchronous; leave them out, or take that."
    return " ".join(filter(None, (did_you_mean(flag, names) for flag in flags))) or "correct or remove it."


def trainer_of(method: str, seam: str = GameArguments.seam) -> str:
    """The class that trains with a method, for `load_named`."""
    return _trained_by(method, seam).trainer


def _trained_by(method: str, seam: str) -> Preset:
    return _ASYNCHRONOUS if seam == "asynchronous" else PRESETS.get(method, _ANY)


def load_named(name: str) -> Any:
    """What `"package.module:name"` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _read(recipe: str | None) -> dict[str, Any]:
    if recipe is None:
        return {}
    try:
        values = parse_yaml(read_text(recipe))
    except ValueError as error:
        raise ValueError(f"a recipe must be YAML, got {recipe!r} ({error}); correct it.") from None
    if not isinstance(values, dict):
        raise ValueError(f"a recipe must be a YAML mapping of fields to values, got {recipe!r} without; correct it.")
    method = values.get("method")
    if not isinstance(method, str | None):
        raise ValueError(f"a recipe's method must be a name, got {method!r}; write its options as method_options.")
    return values


def _options(value: Any) -> dict[str, Any]:
    return dict(value or {})
