"""`hf-credit hub`: the commands of local-hub, which serves a Hugging Face Hub."""

from __future__ import annotations

import typer

from hf_credit.extras import how_to_install
from hf_credit.trust import installed


def _missing() -> None:
    raise ImportError(f"your own Hub needs the package local-hub, got none; run {how_to_install('hub')}.")


if installed("local_hub"):
    from local_hub.commands import app as hub
else:
    hub = typer.Typer(no_args_is_help=True, help="Serve your own Hugging Face Hub; needs local-hub.")
    for _name in ("serve", "token", "check", "run-space"):
        hub.command(_name, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(_missing)
