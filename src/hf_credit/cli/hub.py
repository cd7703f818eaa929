"""`hf-credit hub`: a Hugging Face Hub of one's own, by the commands of local-hub."""

from __future__ import annotations

import importlib.util

import typer


def _missing() -> None:
    raise ImportError(
        "a Hub of your own needs local-hub, got none; install it from a clone by: pip install ./packages/local-hub"
    )


if importlib.util.find_spec("local_hub") is not None:
    from local_hub.commands import app as hub
else:
    hub = typer.Typer(no_args_is_help=True, help="Serve a Hugging Face Hub of your own; needs local-hub.")
    for _name in ("serve", "token", "check", "run-space"):
        hub.command(_name, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(_missing)
