"""Options that several commands share, and `name=value` pairs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from hf_credit.safe_io import parse_json
from hf_credit.trust import code_in

if TYPE_CHECKING:
    from hf_credit.oracles import Oracle

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
    from hf_credit import oracles

    return oracles.make(oracle, **parse_options(options)) if oracle else None


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
