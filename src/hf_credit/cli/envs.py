"""`hf-credit envs`: what can be played, and who judges it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any


def envs() -> None:
    """Lists the environments with their options and the oracle that judges their actions, and the collaborations.

    Installed packages add their own by entry points; your own is named as module:object wherever a name is allowed.

    \b
    Examples:
      hf-credit envs
      hf-credit play sudoku --option size=4    # an option of the list, set to another value
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from hf_credit import collaborations, environments
    from hf_credit.oracles import default_oracle
    from hf_credit.registry import find

    table = Table("environment", "options and their defaults", "oracle", box=box.SIMPLE_HEAD)
    for name in environments.known():
        factory = find("environment", {**environments.ENVIRONMENTS, **environments.WORLDS}, name)
        needed = any(one.default is one.empty for one in _parameters(factory))
        environment = None if needed or name in environments.WORLDS else environments.make(name)
        oracle = None if environment is None else default_oracle(environment)
        judge = "none" if oracle is None else getattr(oracle, "name", type(oracle).__name__)
        options = [_option(one, getattr(environment, one.name, None)) for one in _parameters(factory)]
        table.add_row(name, "\n".join(options) or "none", judge)
        table.add_section()
    together = Table("collaboration", "options and their defaults", box=box.SIMPLE_HEAD)
    for name in collaborations.known():
        factory = find("collaboration", collaborations.COLLABORATIONS, name)
        options = [_option(one, None) for one in _parameters(factory)]
        together.add_row(name, "\n".join(options) or "none")
        together.add_section()
    for one in (table, together):
        Console().print(one)


def _parameters(factory: Callable[..., Any]) -> list[inspect.Parameter]:
    any_number = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one for one in inspect.signature(factory).parameters.values() if one.kind not in any_number]


def _option(parameter: inspect.Parameter, used: object) -> str:
    """An option as `--option` takes it."""
    if parameter.default is parameter.empty:
        return f"{parameter.name}=... (needed)"
    if parameter.default is None:
        return f"{parameter.name}={_text(used)}" + (" (follows from the others)" if used is not None else "")
    return f"{parameter.name}={_text(parameter.default)}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=repr)
