"""Commands that entry points declare: those of the bench, of the leaderboard and of other distributions."""

from __future__ import annotations

import typer

from hf_credit import registry
from hf_credit.trust import only_typed_here


def add_commands(app: typer.Typer) -> None:
    """Adds the commands of entry points.

    An entry point of the group `hf_credit.commands`, named like its command, names a `typer.Typer` whose commands
    become commands of `hf-credit`. One that cannot be imported fails when it is typed.
    """
    with only_typed_here(()):  # what lies in the current folder is not installed
        for name in registry.names("command", {}):
            try:
                commands = registry.find("command", {}, name)
                if not isinstance(commands, typer.Typer):
                    raise ValueError(f"a command must be a typer.Typer, got {type(commands).__name__} for {name!r}.")
                app.add_typer(commands)
            except Exception as error:  # told where the command is typed
                _add_failing(app, name, error)


def _add_failing(app: typer.Typer, name: str, error: Exception) -> None:
    """Adds a command that raises an error, whatever is typed after it."""

    def fail() -> None:
        raise error

    any_arguments = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(
        name, short_help="Not available: type it to see why.", add_help_option=False, context_settings=any_arguments
    )(fail)
