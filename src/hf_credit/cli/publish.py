"""`hf-credit publish`: publishes to the Hub in one commit, which is verified before it becomes public."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hf_credit.cli.options import EnvironmentName, EnvironmentOptions, TaskName, parse_options, with_options

if TYPE_CHECKING:
    from hf_credit.hub.publishing import Published

publish = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Publish to the Hub in one commit, which is verified by download before it becomes public.",
)

Repo = Annotated[str, typer.Argument(metavar="REPO", help="owner/name; created if it does not exist.")]
Private = Annotated[bool, typer.Option("--private", help="Keep a new repository private.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything and send nothing.")]


@dataclass(frozen=True, kw_only=True)
class Where:
    """Options that every publication has."""

    private: Private = False
    pr: Annotated[bool, typer.Option("--pr", help="Open a pull request instead of a commit.")] = False
    tag: Annotated[str | None, typer.Option(help="Tag of the commit, such as v1.")] = None
    dry_run: DryRun = False


@publish.command(short_help="An environment, as a Space that serves it.")
@with_options("where", Where)
def environment(
    source: EnvironmentName,
    repo: Repo,
    option: EnvironmentOptions = None,
    where: Where = Where(),
) -> None:
    """Publishes an environment as an OpenEnv Space.

    \b
    Example:
      hf-credit publish environment sudoku me/sudoku -o size=4
    """
    from hf_credit.hub.environments import publish_environment

    show(publish_environment(source, repo, options=parse_options(option), **vars(where)))


@publish.command(short_help="Tasks, as a dataset.")
@with_options("where", Where)
def tasks(
    source: TaskName,
    repo: Repo,
    option: EnvironmentOptions = None,
    train: Annotated[int, typer.Option(help="Number of training tasks.", min=0)] = 1024,
    held_out: Annotated[int, typer.Option(help="Number of held-out tasks.", min=0)] = 256,
    first: Annotated[int, typer.Option(help="Index of the first task of each split.", min=0)] = 0,
    where: Where = Where(),
) -> None:
    """Publishes tasks of an environment or a collaboration as a dataset.

    \b
    Example:
      hf-credit publish tasks sudoku me/sudoku-tasks -o size=4 --train 4096
    """
    from hf_credit.hub.task_sets import publish_tasks
    from hf_credit.tasks import TaskSpec

    spec = TaskSpec.of_name(source, parse_options(option))
    counts = {"train": train, "held_out": held_out, "first": first}
    show(publish_tasks(spec, repo, **counts, **vars(where)))


@publish.command(short_help="Episodes with their decisions, as a dataset.")
@with_options("where", Where)
def episodes(
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder from `hf-credit evaluate --save-episodes`.")
    ],
    repo: Repo,
    where: Where = Where(),
) -> None:
    """Publishes episodes as a dataset, which can be replayed from any decision.

    \b
    Example:
      hf-credit evaluate runs/sudoku --episodes 64 --save-episodes runs/episodes
      hf-credit publish episodes runs/episodes me/sudoku-episodes
    """
    from hf_credit.hub.episode_sets import publish_episode_folder

    show(publish_episode_folder(source, repo, **vars(where)))


@publish.command(short_help="A checkpoint, to evaluate or to resume training.")
@with_options("where", Where)
def checkpoint(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="A run's folder, or a checkpoint in it.")],
    repo: Repo,
    model_only: Annotated[
        bool, typer.Option("--model-only", help="Omit the state of the trainer, which is needed to resume.")
    ] = False,
    base: Annotated[
        str | None, typer.Option(help="The base model of adapters that a folder names, as owner/name[@revision].")
    ] = None,
    where: Where = Where(),
) -> None:
    """Publishes the policy of a run, with its cost and its evaluations.

    \b
    Example:
      hf-credit train recipe.yaml --save_strategy steps --save_steps 10
      hf-credit publish checkpoint runs/sudoku me/sudoku-policy
      hf-credit train recipe.yaml --save_strategy steps --save_steps 10 --resume_from_checkpoint hub:me/sudoku-policy
    """
    from hf_credit.hub.checkpoints import publish_checkpoint

    show(publish_checkpoint(source, repo, resumable=not model_only, base=base, **vars(where)))


@publish.command(short_help="A metric, as a Space that evaluate loads.")
@with_options("where", Where)
def metric(
    source: Annotated[
        str, typer.Argument(metavar="METRIC", help="A metric from `hf-credit metrics`, or your own folder.")
    ],
    repo: Repo,
    where: Where = Where(),
) -> None:
    """Publishes a metric, which is then loaded with evaluate.load("owner/name").

    \b
    Example:
      hf-credit publish metric pass_at_k me/pass_at_k
    """
    from hf_credit.hub.metrics import publish_metric

    show(publish_metric(source, repo, **vars(where)))


def show(done: Published) -> None:
    """Prints the result of a publication."""
    count = f"{len(done.files)} files"
    if done.commit is None:
        typer.echo(f"Would publish {count} to {done.url}: {', '.join(done.files)}")
        return
    request = f", as {done.pull_request}" if done.pull_request else ""
    seen = "private" if done.private else "public"
    typer.echo(f"Published {count}{request} to {done.url} at {done.commit} ({seen}).")
