"""`hf-credit metrics`: what can be measured of an agent or its credit, by modules of `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hf_credit.metrics import METRICS, build, find, summary


def metrics(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The metric whose card to print.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write NAME to this folder as a Space, in a folder called NAME."),
    ] = None,
) -> None:
    """Lists the metrics that `hf_credit.hub.load_metric` loads, with a sentence each, or prints the card of one.

    \b
    Examples:
      hf-credit metrics
      hf-credit metrics pass_at_k
      hf-credit metrics pass_at_k --output spaces    # for evaluate.load("spaces/pass_at_k")
    """
    if name is None:
        for one in METRICS:
            typer.echo(f"{one}\n      {summary(one)}")
    elif output is None:
        typer.echo((find(name) / "README.md").read_text(encoding="utf-8"), nl=False)
    else:
        typer.echo(f"Wrote {build(name, output)}.")
