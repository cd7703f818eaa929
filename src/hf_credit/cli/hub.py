"""`hf-credit hub`: a Hugging Face Hub of one's own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

hub = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Serve a Hugging Face Hub of your own, for a laptop, a cluster without internet, or tests.",
)


def _needed() -> None:
    """Says what to install where the server's libraries are missing."""
    for name in ("pathspec", "starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"a Hub of your own needs the extra 'hub', got no {name}; pip install 'hf-credit[hub]'.")


@hub.command(short_help="Serve the Hub of a folder.")
def serve(
    folder: Annotated[Path, typer.Argument(help="In which everything lies; made if it is not there.")],
    port: Annotated[int, typer.Option(help="To listen at, any free one for 0.")] = 8765,
    host: Annotated[str, typer.Option(help="Address to listen at; beyond loopback put TLS before it.")] = "127.0.0.1",
    token_file: Annotated[
        Path | None, typer.Option(help="Whose token may do everything; written if it is not there.")
    ] = None,
    rate_limit: Annotated[int | None, typer.Option(help="Requests of one caller in five minutes.")] = None,
    faults: Annotated[Path | None, typer.Option(help="JSON of failures on demand, for tests of clients.")] = None,
) -> None:
    """Serves repositories of models, datasets and Spaces to huggingface_hub, hf, datasets, transformers and others.

    The folder's env.sh sets what clients need: source it before they start.

    \b
    Examples:
      hf-credit hub serve my-hub &
      . my-hub/env.sh
      hf upload me/my-model ./my-model
    """
    _needed()
    from hf_credit.hub.server import Faults, Limits
    from hf_credit.hub.server.running import serve as run
    from hf_credit.untrusted import read_json

    rules = None if faults is None else Faults.from_json(read_json(faults))
    run(folder, host, port, token_file=token_file, faults=rules, limits=Limits(requests=rate_limit))
