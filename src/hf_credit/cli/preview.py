"""`hf-credit preview`: shows what a training would see, before it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Annotated

import typer

from hf_credit.cli.progress import Progress, be_quiet
from hf_credit.recipes import find


def preview(
    context: typer.Context,
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A recipe, as for `hf-credit train`.")],
    tasks: Annotated[int, typer.Option(min=1, help="Task rows to play.")] = 8,
    shown: Annotated[int, typer.Option(min=0, help="Episodes to show whole.")] = 2,
) -> None:
    """Shows a few episodes of a recipe as the policy reads and writes them, and whether it can begin to learn.

    One update of a few tasks is played, credited and learned from with the settings of the recipe and a learning rate
    of 0. Nothing is saved. `--field value` after CONFIG overrides any field of the recipe, as for `hf-credit train`.

    \b
    Examples:
      hf-credit preview sudoku_micro
      hf-credit preview recipe.yaml --model_name_or_path HuggingFaceTB/SmolLM2-135M-Instruct --tasks 16
    """
    be_quiet()
    recipe = str(find(config))
    from hf_credit.trainers.preview import preview as look

    main = int(os.environ.get("RANK", "0")) == 0
    with Progress() as progress, progress.playing(f"episodes of {config}") if main else nullcontext():
        found = look(["--config", recipe, *context.args], tasks, shown)
    if main:
        typer.echo(str(found))
