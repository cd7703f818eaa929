"""What several commands take: options of tasks and oracles as `name=value`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.registry import code_in
from hf_credit.safe_io import parse_json

if TYPE_CHECKING:
    from hf_credit.oracles import Oracle

EnvironmentName = Annotated[
    str, typer.Argument(metavar="ENV", help="An environment; see `hf-credit envs`, or module:Class.")
]
TaskName = Annotated[
    str,
    typer.Argument(metavar="TASK", help="An environment or a collaboration; see `hf-credit envs`, or module:object."),
]
EnvironmentOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the task; give it several times."),
]
DeviceOption = Annotated[str | None, typer.Option(help="Such as cuda:0; a GPU if there is one.")]


def given(**values: Any) -> dict[str, Any]:
    """The values that are not `None`: what the user gave."""
    return {name: value for name, value in values.items() if value is not None}


def named_oracle(oracle: str | None, options: list[str] | None) -> Oracle[Any] | None:
    """The oracle that a command line names, with its options.

    Raises:
        ValueError: there are options without an oracle, or there is no such oracle.
    """
    if options and not oracle:
        raise ValueError(f"--oracle-option needs --oracle, got {options} without; name the oracle.")
    from hf_credit import oracles

    return oracles.make(oracle, **parse_options(options)) if oracle else None


def parse_options(pairs: Iterable[str] | None) -> dict[str, Any]:
    """Options from `name=value`: numbers, `true`, `false` and `null` as in JSON, anything else as text.

    Raises:
        ValueError: a pair has no `=` or no name, or a name comes twice.
    """
    options: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not (equals and name):
            raise ValueError(f"an option must be name=value, got {pair!r}; write for example size=4.")
        if name in options:
            raise ValueError(f"an option must be given once, got {name!r} again; leave one of them out.")
        options[name] = _value(value)
    return options


def typed_code(words: Iterable[str]) -> frozenset[str]:
    """Every `"module:object"` of a command line: a word, what follows its `=`, or what either holds as JSON."""
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
        pass  # `parse_json` refuses it in one sentence
    return parse_json(text)
