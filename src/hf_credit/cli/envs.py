"""`hf-credit envs`: what can be played, and who judges it."""

from __future__ import annotations

import inspect
import json


def envs() -> None:
    """Lists the games with their options and the oracle that judges their actions, and the collaborations.

    \b
    Examples:
      hf-credit envs
      hf-credit play sudoku --option size=4    # an option of the list, set to another value
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from hf_credit.collaborations import COLLABORATIONS
    from hf_credit.environments import ENVIRONMENTS, make
    from hf_credit.oracles import default_oracle
    from hf_credit.tasks.spec import options_of

    table = Table("environment", "options and their defaults", "oracle", box=box.SIMPLE_HEAD)
    for name in sorted(ENVIRONMENTS):
        environment = make(name)
        oracle = default_oracle(environment)
        judge = "none" if oracle is None else getattr(oracle, "name", type(oracle).__name__)
        parameters = inspect.signature(type(environment)).parameters.values()
        options = [_option(parameter, getattr(environment, parameter.name, None)) for parameter in parameters]
        table.add_row(name, "\n".join(options) or "none", judge)
        table.add_section()
    together = Table("collaboration", "options and their defaults", box=box.SIMPLE_HEAD)
    for name in sorted(COLLABORATIONS):
        options = [_option(parameter, None) for parameter in options_of(name)]
        together.add_row(name, "\n".join(options))
        together.add_section()
    for one in (table, together):
        Console().print(one)


def _option(parameter: inspect.Parameter, used: object) -> str:
    """An option as `--option` takes it."""
    if parameter.default is parameter.empty:
        return f"{parameter.name}=... (needed)"
    if parameter.default is None:
        return f"{parameter.name}={_text(used)} (follows from the others)"
    return f"{parameter.name}={_text(parameter.default)}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
