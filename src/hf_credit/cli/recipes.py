"""`hf-credit recipes`: lists training recipes, or prints one."""

from __future__ import annotations

from typing import Annotated

import typer

from hf_credit.recipes import RECIPES, find, summary


def recipes(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The recipe to print.", show_default=False)
    ] = None,
) -> None:
    """Lists the recipes for `hf-credit train` by method, each in a sentence, or prints one recipe.

    \b
    Examples:
      hf-credit recipes
      hf-credit recipes sudoku_micro > mine.yaml    # to start your own
    """
    if name is not None:
        typer.echo(find(name).read_text(encoding="utf-8"), nl=False)
        return
    for method in sorted({path.parent.name for path in RECIPES.values()}):
        typer.echo(f"{method}:")
        for one, path in RECIPES.items():
            if path.parent.name == method:
                typer.echo(f"  {one}\n      {summary(one)}")
