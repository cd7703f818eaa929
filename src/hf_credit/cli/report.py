"""`hf-credit report`: writes a report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The output_dir of a run.", show_default=False)],
    beside: Annotated[
        list[Path] | None, typer.Option(metavar="RUN_DIR", help="Another run to compare with; repeatable.")
    ] = None,
    update: Annotated[
        int | None, typer.Option(help="Show an episode of this update; by default the last one with credit.", min=1)
    ] = None,
    episode: Annotated[
        int | None,
        typer.Option(
            help="Number of the recorded episode, from 1; by default the one with the largest credit differences.",
            min=1,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Output folder; by default `report` in the run's folder.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Write it again while the run goes on, until this command is interrupted.")
    ] = False,
) -> None:
    """Writes a report of a run: learning curves, the credit of replies, settings, versions, and evaluations if any.

    The page episode.html shows an episode that training recorded (episodes.jsonl, see log_episodes), with links to the
    others of its update. For each decision it has the context, the reply, the task's reward, the oracle's verdict, the
    advantage (of each token if tokens have their own), and the alternatives with their outcomes.

    Evaluations are the files evaluation*.json in the run's folder, written by `hf-credit evaluate --output`. Those on
    the same tasks are compared, including those of --beside.

    \b
    Examples:
      hf-credit report runs/sudoku_micro
      hf-credit report runs/sudoku_micro --watch
      hf-credit report runs/sudoku_micro --output reports/sudoku_micro
      hf-credit report runs/relay_micro --update 1 --episode 2
      hf-credit report runs/relay_micro --beside runs/relay_micro_mappo --beside runs/relay_micro_magrpo
    """
    from hf_credit.evaluation import report as reports
    from hf_credit.evaluation.episode_page import PAGE_FILE

    runs, folder = [run, *(beside or [])], output or run / "report"
    if watch:
        if not (update is episode is None):
            raise ValueError("--watch shows the newest update, got --update or --episode too; leave them out.")
        typer.echo(f"Waiting for an update with recorded episodes in {run}")
        for number, page in enumerate(reports.watch(runs, folder)):
            if not number:
                typer.echo(f"Open {page.resolve().as_uri()}, which renews itself; Ctrl-C ends this command")
        return
    read = reports.report_of(runs, update, episode)
    path = reports.write_report(read, folder)
    typer.echo(f"Wrote {path}{f' and {path.with_name(PAGE_FILE)}' if read.episode else ''}")
