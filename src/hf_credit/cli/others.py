"""Commands of other distributions: those of what is installed, and for the rest what to install."""

from __future__ import annotations

import typer

from hf_credit import registry
from hf_credit.extras import OF_THE_REPOSITORY
from hf_credit.trust import installed, only_typed_here

_KNOWN = {
    "bench": "hf-credit-bench",
    "hub": "local-hub",
    "leaderboard": "hf-credit-leaderboard",
    "submit": "hf-credit-leaderboard",
}


def add_commands(app: typer.Typer) -> None:
    """Adds the commands of other distributions.

    A distribution declares an entry point of the group `hf_credit.commands`, named like its command, for a
    `typer.Typer` whose commands become commands of `hf-credit`. One that cannot be imported fails when it is typed.
    """
    failing: dict[str, Exception] = {
        name: ImportError(
            f"hf-credit {name} needs the package {package}, got none; run pip install {OF_THE_REPOSITORY[package]} "
            "in a clone."
        )
        for name, package in _KNOWN.items()
    }
    if installed("local_hub"):
        from local_hub.commands import app as hub

        del failing["hub"]
        app.add_typer(hub, name="hub", short_help="Serve your own Hugging Face Hub.")
    with only_typed_here(()):  # what lies in the current folder is not installed
        for name in registry.names("command", {}):
            failing.pop(name, None)
            try:
                commands = registry.find("command", {}, name)
                if not isinstance(commands, typer.Typer):
                    raise ValueError(f"a command must be a typer.Typer, got {type(commands).__name__} for {name!r}.")
                app.add_typer(commands)
            except Exception as error:  # told where the command is typed
                failing[name] = error
    for name in failing:
        _add_failing(app, name, failing[name])


def _add_failing(app: typer.Typer, name: str, error: Exception) -> None:
    """Adds a command that raises an error, whatever is typed after it."""

    def fail() -> None:
        raise error

    any_arguments = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(
        name, short_help="Not available: type it to see why.", add_help_option=False, context_settings=any_arguments
    )(fail)
