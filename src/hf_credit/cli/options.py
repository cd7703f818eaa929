"""What several commands take: options of tasks and oracles as `name=value`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

EnvironmentName = Annotated[str, typer.Argument(metavar="ENV", help="An environment; see `hf-credit envs`.")]
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="A game or a collaboration; see `hf-credit envs`.")]
EnvironmentOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the task; give it several times."),
]


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


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
