"""`hf-credit hub`: the commands of local-hub, which serves a Hugging Face Hub."""

from __future__ import annotations

import importlib.util

import typer


def _missing() -> None:
    raise ImportError(
        "your own Hub needs local-hub, which is not installed; install it from a clone by: pip install "
        "./packages/local-hub"
    )


if importlib.util.find_spec("local_hub") is not None:
    from local_hub.commands import app as hub
else:
    hub = typer.Typer(no_args_is_help=True, help="Serve your own Hugging Face Hub; needs local-hub.")
    for _name in ("serve", "token", "check", "run-space"):
        hub.command(_name, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(_missing)
