"""Options that several commands share, those for the task and the policy among them, and `name=value` pairs."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from hf_credit import collaborations, environments, registry
from hf_credit.boundary import types_of
from hf_credit.cli.lists import TRAINERS
from hf_credit.options import Option, first_sentence, with_fields_of
from hf_credit.playing import Prompts, Sampling
from hf_credit.recipes import find, read
from hf_credit.renamed import warn_of_old_name
from hf_credit.safe_io import as_mapping, parse_json
from hf_credit.trust import NO_CONSENT, Consent, code_in, search_here

if TYPE_CHECKING:
    from hf_credit.oracles import Oracle
    from hf_credit.tasks import TaskSpec

EnvironmentName = Annotated[
    str, typer.Argument(metavar="ENV", help="An environment of `hf-credit envs`, or your own module:Class.")
]
TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="An environment or collaboration of `hf-credit envs`, or your own module:object."
    ),
]
EnvironmentOptions = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the task; repeatable.")
]
MethodOptions = Annotated[
    list[str] | None,
    typer.Option("--method-option", metavar="NAME=VALUE", help="An option of the method; repeatable."),
]
OracleOptions = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of --oracle; repeatable.")
]
DatasetOption = Annotated[
    str | None, typer.Option(help="Task rows: a file or an id on the Hub; by default those of the task.")
]
SplitOption = Annotated[str, typer.Option(help="Split of the dataset, if it has splits.")]
DeviceOption = Annotated[
    str | None, typer.Option(help="Device of the model, such as cuda:0; by default a GPU if there is one.")
]

EndpointOption = Annotated[str | None, typer.Option(help="URL of the Hub; by default HF_ENDPOINT, or huggingface.co.")]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="A folder with a policy, or an id on the Hub.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON on stdout.")]


RecipeArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[--config] CONFIG",
        help="A recipe: its name (see `hf-credit recipes`), or a YAML file.",
        show_default=False,
    ),
]
RecipeOption = Annotated[
    str | None, typer.Option("--config", metavar="CONFIG", help="The same as an option, for launchers.")
]


_MAPPINGS = ("task_options", "method_options", "oracle_options", "role_models")  # fields of a recipe


def recipe_words(first: str | None, named: str | None, rest: list[str]) -> list[str]:
    """Returns `--config FILE` and the fields of a command line, as `hf_credit.trainers.recipes.read_job` takes them.

    Args:
        first: the first word, a recipe without `named`.
        named: the recipe, if it is named by `--config`.
        rest: the other words.

    Raises:
        ValueError: there is no recipe.
    """
    words = [*([first] if first else []), *rest]
    recipe, fields = (named, words) if named else (first, rest)
    if recipe is None or recipe.startswith("-"):
        raise ValueError(
            f"the first argument must be a recipe, got {recipe!r}; name a file, or a recipe of hf-credit recipes."
        )
    path = find(recipe)
    _refuse_at_once(read(path), fields)
    return ["--config", str(path), *fields]


def _refuse_at_once(recipe: Mapping[str, Any], words: list[str]) -> None:
    """Checks of a recipe what needs no torch, whose import takes seconds: mappings, the task, the method."""
    from hf_credit import methods

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("task", "method", *_MAPPINGS):
        parser.add_argument(*{f"--{name}", f"--{name.replace('_', '-')}"})
    typed = {name: value for name, value in vars(parser.parse_known_args(words)[0]).items() if value is not None}
    values = {**recipe, **typed}
    for name in _MAPPINGS:
        as_mapping(name, values.get(name))
    known = (*environments.known(), *collaborations.known())
    if (task := values.get("task")) and task not in known:
        registry.target_of("task", {}.fromkeys(known, ""), task)
    if (method := values.get("method")) and method not in TRAINERS:
        registry.target_of("method", methods.METHODS | TRAINERS, method)


def with_options(name: str, kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that replaces a parameter of a command by one option for each field of a dataclass.

    Args:
        name: the parameter, which receives an instance of the dataclass.
        kind: the dataclass; its fields have typer's annotations.
    """
    hints = get_type_hints(kind, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(one.name, keyword, default=one.default, annotation=hints[one.name])
        for one in dataclasses.fields(kind)
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            values[name] = kind(**{one.name: values.pop(one.name) for one in shared})
            command(**values)

        signature = inspect.signature(command, eval_str=True)
        parameters = [
            option
            for one in signature.parameters.values()
            for option in (shared if one.name == name else [one.replace(kind=keyword)])
        ]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def given(**values: Any) -> dict[str, Any]:
    """Returns the values that are not `None`."""
    return {name: value for name, value in values.items() if value is not None}


def named_oracle(oracle: str | None, options: list[str] | None) -> Oracle[Any] | None:
    """Makes the oracle of `--oracle` and `--oracle-option`; returns `None` if there is none.

    Raises:
        ValueError: there are options without an oracle, or the oracle does not exist or rejects an option.
    """
    if options and not oracle:
        raise ValueError(f"--oracle-option needs --oracle, got {options} without; name the oracle.")
    if not oracle:
        return None
    from hf_credit import oracles

    name, inline_options = registry.name_and_options("oracle", oracle)
    return oracles.make(name, **{**inline_options, **parse_options(options)})


def parse_options(pairs: Iterable[str] | None) -> dict[str, Any]:
    """Returns options from `name=value` pairs. Values are read as JSON, and as text if they are not JSON.

    Raises:
        ValueError: a pair has no `=` or no name, or a name occurs twice.
    """
    options: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not (equals and name):
            raise ValueError(f"an option must be name=value, got {pair!r}; write for example size=4.")
        if name in options:
            raise ValueError(f"an option must be given once, got {name!r} twice; remove one of them.")
        options[name] = _value(value)
    return options


def typed_code(words: Iterable[str]) -> frozenset[str]:
    """Returns every `module:object` in the words of a command line: a word, the part after its `=`, or JSON in it."""
    found: set[str] = set()
    for word in words:
        while word:
            with contextlib.suppress(ValueError):
                found |= code_in(_value(word))
            word = word.partition("=")[2]
    return frozenset(found)


def _value(text: str) -> Any:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return text
    except (ValueError, RecursionError):
        pass  # `parse_json` raises an error of one sentence
    return parse_json(text)


def _as_in_training(one: Option) -> tuple[Any, Any]:
    return Annotated[
        one.field_type | None, typer.Option(help=f"{first_sentence(one.text)}. By default as in training.")
    ], None


@dataclass(frozen=True, kw_only=True)
@with_fields_of(Prompts, Sampling, declare=_as_in_training)
class Prompted:
    """Options of a command for the task, its prompts and its sampling: each field is one, with its default."""

    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK", help="Environment or collaboration; by default as recorded in the model's folder."
        ),
    ] = None
    environment: Annotated[str | None, typer.Option(hidden=True)] = None
    option: EnvironmentOptions = None
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code",
            help="Run the code of the model, the task and the method that a policy's folder or repository contains or "
            "names.",
        ),
    ] = False

    def spec(self, model: str, consent: Consent = NO_CONSENT) -> TaskSpec:
        """Returns the task in a model's folder, or another that `task` names, changed by these options.

        Warns on stderr if prompts differ from training. Only with `trust_remote_code` may the model's file name code.

        Args:
            model: a folder or an id on the Hub.
            consent: to further code that the user named, so that the spec may name it.

        Raises:
            ValueError: the model does not exist, is a run that was stopped, neither it nor `task` names a task, or an
                option is invalid.
        """
        from hf_credit.loading import refuse_stopped, require_model
        from hf_credit.tasks import TASK_FILE, TaskSpec

        if self.environment:
            warn_of_old_name("--environment", "--task")
        task, options = self.task or self.environment, parse_options(self.option)
        require_model(model)
        recorded = TaskSpec.load(model)
        if recorded is not None:
            found = replace(recorded, trusted=self.trust_remote_code, consent=consent.to_code(task))
            if self.trust_remote_code:
                search_here(found.code())
            known = found.with_options(options) if task in (None, found.task) else found.on(task, options)
        else:
            refuse_stopped(Path(model))
            if task is None:
                raise ValueError(f"a policy needs a task, got {model!r} without {TASK_FILE}; add --task.")
            known = TaskSpec.of_name(task, options)
        prompts, sampling = (
            given(**{name: getattr(self, name) for name in types_of(one)}) for one in (Prompts, Sampling)
        )
        spec = replace(known, **prompts, sampling=replace(known.sampling, **sampling))
        if (difference := spec.shown_unlike(recorded, model)) is not None:
            typer.echo(f"Warning: {difference}", err=True)
        return spec


@dataclass(frozen=True, kw_only=True)
class Played(Prompted):
    """Options of a command that plays a task with a policy."""

    dataset: DatasetOption = None
    split: SplitOption = "test"
    first_task: Annotated[int, typer.Option(help="Index of the first task.", min=0)] = 0
    oracle: Annotated[
        str | None, typer.Option(help="Oracle that judges the actions; by default that of the environment.")
    ] = None
    oracle_option: OracleOptions = None
    role_model: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=MODEL", help="Model of an untrained role, such as a judge; repeatable."),
    ] = None
    batch_size: Annotated[int, typer.Option(help="Number of parallel episodes.", min=1)] = 256
    device: DeviceOption = None

    def loading(self) -> dict[str, Any]:
        """Returns the arguments of `evaluate_model` and `load_subject` for loading and playing the policy."""
        return {
            "role_models": parse_options(self.role_model),
            "max_concurrent": self.batch_size,
            "device": self.device,
            "trust_remote_code": self.trust_remote_code,
        }


def warn_of_own_replies(about: Mapping[str, Any]) -> None:
    """Warns of untrained roles that the policy itself played."""
    for role, name in about.get("role_models", {}).items():
        if name is None:
            typer.echo(
                f"Warning: the policy itself played the role {role!r}; set --role-model {role}=MODEL.", err=True
            )
