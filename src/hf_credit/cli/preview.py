"""`hf-credit preview`: shows what a training would see, before it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Annotated

import typer

from hf_credit.cli.options import RecipeArgument, RecipeOption, recipe_words
from hf_credit.cli.progress import Progress, be_quiet


def preview(
    context: typer.Context,
    config: RecipeArgument = None,
    named: RecipeOption = None,
    tasks: Annotated[int, typer.Option(min=1, help="Task rows to play.")] = 8,
    shown: Annotated[int, typer.Option(min=0, help="Episodes to show whole.")] = 2,
    collections: Annotated[
        int, typer.Option(min=1, help="The most updates that measure the signal; with 1 or 2, none is.")
    ] = 16,
) -> None:
    """Shows a few episodes of a recipe as the policy reads and writes them, and whether it can begin to learn.

    Updates of a few tasks are played, credited and learned from with the settings of the recipe and a learning rate
    of 0, which tell how much signal the method has, next to the plain outcome. Nothing is saved. It takes the words of
    `hf-credit train`: `--field value` overrides any field of the recipe.

    \b
    Examples:
      hf-credit preview sudoku_micro
      hf-credit preview recipe.yaml --model_name_or_path HuggingFaceTB/SmolLM2-135M-Instruct --tasks 16
    """
    be_quiet()
    arguments = recipe_words(config, named, context.args)
    from hf_credit.trainers.preview import preview as look

    main = int(os.environ.get("RANK", "0")) == 0
    with Progress() as progress, progress.playing(f"episodes of {named or config}") if main else nullcontext():
        found = look(arguments, tasks, shown, collections)
    if main:
        typer.echo(str(found))
