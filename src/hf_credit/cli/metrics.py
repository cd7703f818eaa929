"""`hf-credit metrics`: lists metrics of agents and of their credit, as modules for `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hf_credit.metrics import METRICS, build, find, summary


def metrics(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A metric; prints its card.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the Space of the metric to FOLDER/NAME."),
    ] = None,
) -> None:
    """Lists the metrics that `hf_credit.hub.load_metric` loads, each in a sentence, or prints the card of one metric.

    \b
    Examples:
      hf-credit metrics
      hf-credit metrics pass_at_k
      hf-credit metrics pass_at_k --output spaces    # for evaluate.load("spaces/pass_at_k")
    """
    if name is None:
        for metric in METRICS:
            typer.echo(f"{metric}\n      {summary(metric)}")
    elif output is None:
        typer.echo((find(name) / "README.md").read_text(encoding="utf-8"), nl=False)
    else:
        typer.echo(f"Wrote {build(name, output)}.")
