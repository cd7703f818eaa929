"""`hf-credit methods`, `metrics` and `recipes`: lists of names, each with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hf_credit import metrics as all_metrics
from hf_credit import recipes as all_recipes

# Names that only a trainer knows.
TRAINERS = {"truncated_ppo": "T3: PPO, GRPO or GSPO (--algorithm) over many turns, cut where an episode stalls."}


def methods(
    name: Annotated[str | None, typer.Argument(help="A method; lists its options.")] = None,
) -> None:
    """Lists the methods for `hf-credit train --method`, each in a sentence, or the options of one method.

    Installed packages can add methods through entry points. Name your own as module:factory.

    \b
    Examples:
      hf-credit methods
      hf-credit methods ppo                  # its options, their values and defaults
      hf-credit train sudoku_micro --method outcome_reward
    """
    from hf_credit import methods
    from hf_credit.options import options_of

    if name in TRAINERS:
        typer.echo(f"{TRAINERS[name]}\nIts options: hf-credit train --method {name} --help")
        return
    if name is not None:
        typer.echo(methods.summary(name))
        for option in options_of(methods.find(name)).values():
            typer.echo(str(option))
        return
    sentences = {known: methods.summary(known) for known in methods.known()}
    for known, sentence in sorted({**sentences, **TRAINERS}.items()):
        typer.echo(f"{known}\n      {sentence}")


def metrics(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A metric; prints its card.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the Space of the metric to FOLDER/NAME.")
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
        for metric in all_metrics.METRICS:
            typer.echo(f"{metric}\n      {all_metrics.summary(metric)}")
    elif output is None:
        typer.echo(all_metrics.card(name), nl=False)
    else:
        typer.echo(f"Wrote {all_metrics.build(name, output)}.")


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
        typer.echo(all_recipes.find(name).read_text(encoding="utf-8"), nl=False)
        return
    for method in sorted({path.parent.name for path in all_recipes.RECIPES.values()}):
        typer.echo(f"{method}:")
        for one, path in all_recipes.RECIPES.items():
            if path.parent.name == method:
                typer.echo(f"  {one}\n      {all_recipes.summary(one)}")
