"""`hf-credit submit`: submits results with every reply to a leaderboard, by a pull request."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from hf_credit.cli.options import DeviceOption, EndpointOption, MethodOptions, parse_options
from hf_credit.cli.progress import Progress, be_quiet
from hf_credit.files import write

BenchmarkOption = Annotated[str, typer.Option(help="The dataset of the season, as owner/name.")]


def submit(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN]... BOARD",
            help="A checkpoint per training seed, as owner/name[@revision] or a run's folder; then the board.",
        ),
    ],
    benchmark: BenchmarkOption,
    name: Annotated[str | None, typer.Option(help="Name of the entry; by default the method's.")] = None,
    method: Annotated[str | None, typer.Option(help="Submit the credit of this method to a credit board.")] = None,
    method_option: MethodOptions = None,
    publish_as: Annotated[
        str | None, typer.Option(help="Repository to publish folders to, as owner/name; several get -0, -1, ...")
    ] = None,
    base: Annotated[str | None, typer.Option(help="The base model of adapters, as owner/name[@revision].")] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed of each training run, in order; by default as recorded by the run.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Also write the files of the entry to this folder.")] = None,
    model_results: Annotated[
        bool,
        typer.Option(
            "--model-results", help="Also open a pull request with the result as .eval_results of each checkpoint."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Play the tasks, but open no pull request.")] = False,
    device: DeviceOption = None,
    endpoint: EndpointOption = None,
) -> None:
    """Plays the public tasks of a board, and opens a pull request with every reply.

    The verifier of the board executes every reply again, plays the checkpoints on secret tasks, and merges the pull
    request with a signed record or closes it with a reason.

    \b
    Examples:
      hf-credit submit me/policy-0 me/policy-1 "sudoku 4x4" --benchmark them/benchmark
      hf-credit submit runs/relay_micro relay --publish-as me/relay --benchmark them/benchmark
      hf-credit submit --method replay_loo "relay credit" --benchmark them/benchmark
    """
    be_quiet()  # before the imports that print warnings
    from hf_credit.hub.checkpoints import publish_checkpoint
    from hf_credit.hub.leaderboard.sources import Hub
    from hf_credit.hub.leaderboard.submission import make_credit_submission, make_submission, propose

    *runs, board = targets
    hub = Hub(endpoint=endpoint)
    command = shlex.join(["hf-credit", *sys.argv[1:]])
    if (method is None) != bool(runs):
        raise ValueError(
            f"an entry needs either --method or checkpoints, got --method {method} and {len(runs)} checkpoints; give "
            "one of the two."
        )
    if method is not None:
        submission = make_credit_submission(
            hub, benchmark, board, method, parse_options(method_option), name=name, command=command
        )
    else:
        for place, run in enumerate(runs):
            if Path(run).is_dir():
                if publish_as is None:
                    raise ValueError(f"a folder must be published to be verified, got {run!r}; add --publish-as.")
                repo = publish_as if len(runs) == 1 else f"{publish_as}-{place}"
                runs[place] = f"{repo}@{publish_checkpoint(run, repo, resumable=False, endpoint=endpoint).commit}"
        with Progress() as progress, progress.playing("episodes"):
            submission = make_submission(
                hub, benchmark, board, runs, name=name, base=base, seeds=seed or (), command=command, device=device
            )
    if output is not None:
        for file, content in submission.files.items():
            write(output / file, content if isinstance(content, bytes) else content.read_bytes())
    typer.echo(f"Entry {submission.id}: mean outcome {submission.score:.4f} on the public tasks of {board!r}.")
    if not dry_run:
        season, _, _ = hub.season(benchmark)
        opened = str(submission.send(hub, season.results).pull_request)
        typer.echo(f"Opened {opened}")
        if model_results:
            for request in propose(hub, submission.entry, submission.claimed, opened):
                typer.echo(f"Opened {request}")
