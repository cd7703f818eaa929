"""`hf-credit envs`: lists environments, their options and oracles, and collaborations."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from hf_credit.cli.options import EnvironmentOptions, parse_options
from hf_credit.content import in_words


def envs(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[TASK]", help="Shows what the policy reads first in this task.", show_default=False),
    ] = None,
    option: EnvironmentOptions = None,
    model: Annotated[
        str | None, typer.Option(help="A model, whose chat template writes the prompt as it reads it.")
    ] = None,
) -> None:
    """Lists the environments with their options and the oracle that judges their actions, and the collaborations.

    Installed packages can add environments through entry points. Name your own as module:object, in place of any name.

    \b
    Examples:
      hf-credit envs
      hf-credit envs sudoku --option size=4    # the first prompt of a task
      hf-credit play sudoku --option size=4    # sets an option of the list
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    if name is not None:
        typer.echo(_first_prompts(name, parse_options(option), model))
        return
    from hf_credit import collaborations, environments
    from hf_credit.oracles import default_oracle

    table = Table("environment", "options and their defaults", "oracle", box=box.SIMPLE_HEAD)
    for name in environments.known():
        factory = environments.NAMED.find(name)
        needed = any(option.default is option.empty for option in _parameters(factory))
        environment = None if needed or name in environments.WORLDS else environments.make(name)
        oracle = None if environment is None else default_oracle(environment)
        judge = "none" if oracle is None else getattr(oracle, "name", type(oracle).__name__)
        table.add_row(name, _options(factory, environment), judge, end_section=True)
    teams = Table("collaboration", "options and their defaults", box=box.SIMPLE_HEAD)
    for name in collaborations.known():
        teams.add_row(name, _options(collaborations.NAMED.find(name)), end_section=True)
    for listed in (table, teams):
        Console().print(listed)


def _first_prompts(name: str, options: dict[str, Any], model: str | None) -> str:
    """What each role of a task that speaks first reads; as messages, or as a model's template writes them."""
    from hf_credit.redaction import written_out
    from hf_credit.rollouts.capabilities import TaskSource
    from hf_credit.tasks import TaskSpec

    interaction = TaskSpec.of_name(name, options).build()
    (row,) = TaskSource(interaction).tasks("train", 1)
    shown = []
    for request in interaction.pending(interaction.start(row, row.get("seed", 0))):
        if model is None:
            shown += [
                f"--- {request.role} reads, as {one['role']}\n{in_words(one['content'])}" for one in request.messages
            ]
            shown += [f"--- {request.role} may call\n{json.dumps(tool)}" for tool in request.tools]
        else:
            from hf_credit.loading import load_processing_class
            from hf_credit.rollouts import Chat

            chat = Chat(load_processing_class(model))
            ids = chat.context(request.messages, tools=request.tools)
            shown.append(f"--- {request.role} reads {len(ids)} tokens\n{chat.tokenizer.decode(list(ids))}")
    return written_out("\n".join(shown))


def _parameters(factory: Callable[..., Any]) -> list[inspect.Parameter]:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one for one in inspect.signature(factory).parameters.values() if one.kind not in variadic]


def _options(factory: Callable[..., Any], environment: Any = None) -> str:
    """Writes options as `--option` takes them, with the values that an environment gives those without a default."""
    lines = []
    for one in _parameters(factory):
        derived = getattr(environment, one.name, None) if one.default is None else None
        value = one.default if derived is None else derived
        text = value if isinstance(value, str) else json.dumps(value, default=repr)
        note = "" if derived is None else " (derived from other options)"
        lines.append(f"{one.name}=... (required)" if value is one.empty else f"{one.name}={text}{note}")
    return "\n".join(lines) or "none"
