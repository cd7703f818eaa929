"""`hf-credit submit`: submits results with every reply to a leaderboard, by a pull request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hf_credit.cli.options import DeviceOption, EndpointOption
from hf_credit.cli.progress import Progress, be_quiet

commands = typer.Typer()


@commands.command(short_help="Enter results on a leaderboard.")
def submit(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN]... BOARD",
            help="A checkpoint per training seed, as owner/name[@revision] or a run's folder; then the board.",
        ),
    ],
    benchmark: Annotated[str, typer.Option(help="The dataset of the season, as owner/name.")],
    name: Annotated[str | None, typer.Option(help="Name of the entry; by default the method's.")] = None,
    publish_as: Annotated[
        str | None, typer.Option(help="Repository to publish folders to, as owner/name; several get -0, -1, ...")
    ] = None,
    base: Annotated[str | None, typer.Option(help="The base model of adapters, as owner/name[@revision].")] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed of each training run, in order; by default as recorded by the run.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Also write the files of the entry to this folder.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Play the tasks, but open no pull request.")] = False,
    device: DeviceOption = None,
    endpoint: EndpointOption = None,
) -> None:
    """Plays the public tasks of a board, and opens a pull request with every reply.

    The verifier of the board executes every reply again, plays the checkpoints on secret tasks, and lists the entry
    with a signed record or gives a reason; either closes the pull request.

    \b
    Examples:
      hf-credit submit me/policy-0 me/policy-1 "sudoku 4x4" --benchmark them/benchmark
      hf-credit submit runs/relay_micro relay --publish-as me/relay --benchmark them/benchmark
    """
    be_quiet()  # before the imports that print warnings
    from hf_credit.redaction import redacted_command, without_folders
    from hf_credit_leaderboard import submission
    from hf_credit_leaderboard.sources import Hub

    *runs, board = targets
    if not runs:
        raise ValueError(f"an entry needs a checkpoint before the board, got {board!r} alone; name one.")
    hub = Hub(endpoint=endpoint)
    about: dict[str, Any] = {"name": name, "command": without_folders(redacted_command(["hf-credit", *sys.argv[1:]]))}
    hub.season(benchmark)[0].board(board)  # an unknown one is an error before anything is public
    if dry_run and any(Path(run).is_dir() for run in runs):
        raise ValueError("a dry run plays what is published, got a folder, which is not; name a repository.")
    runs = submission.published(hub, runs, publish_as, base)
    about |= {"base": base, "seeds": seed or (), "device": device}
    with Progress() as progress, progress.playing("episodes"):
        made = submission.make_submission(hub, benchmark, board, runs, **about)
    if output is not None:
        made.save(output)
    typer.echo(f"Entry {made.id}: mean outcome {made.score:.4f} on the public tasks of {board!r}.")
    if not dry_run:
        season, _ = hub.season(benchmark)
        typer.echo(f"Opened {made.send(hub, season.results).pull_request}")
