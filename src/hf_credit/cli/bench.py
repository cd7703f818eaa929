"""`hf-credit bench`: compares methods by exact values."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from hf_credit.cli.options import parse_options
from hf_credit.cli.progress import Progress
from hf_credit.files import write


def bench(
    method: Annotated[
        list[str] | None, typer.Option(help="A method, or module:factory; repeatable; default: all.")
    ] = None,
    problem: Annotated[
        list[str] | None, typer.Option(help="A problem, or module:factory; repeatable; default: all.")
    ] = None,
    dial: Annotated[
        list[str] | None, typer.Option(help="A parameter of the problem, such as horizon=32; repeatable.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="The policy to score with: start, half, solved or adversarial; repeatable; default: start, solved."
        ),
    ] = None,
    critic: Annotated[
        str, typer.Option(help="Predictions of critics: exact, noisy, taught (learned) or untaught (0).")
    ] = "taught",
    oracle_error: Annotated[
        float,
        typer.Option(min=0, max=0.5, help="The probability of an oracle's wrong verdict, unless a dial says it."),
    ] = 0.1,
    seeds: Annotated[int, typer.Option(min=0, help="Number of training runs, one per seed; 0 only scores.")] = 10,
    updates: Annotated[int, typer.Option(min=8, help="Number of updates per score.")] = 100,
    processes: Annotated[int | None, typer.Option(min=1, help="Parallel processes; by default one per core.")] = None,
    output: Annotated[
        Path, typer.Option(help="Output folder; cells that it already contains are not measured again.")
    ] = Path("creditbench"),
    push_to_hub: Annotated[
        str | None, typer.Option(metavar="REPO", help="Publish the cells as a dataset: owner/name.")
    ] = None,
    guide: Annotated[Path | None, typer.Option(help="Also write the page of recommendations to this file.")] = None,
    along_dials: Annotated[
        bool | None,
        typer.Option(
            "--along-dials/--no-along-dials",
            help="Also score a few methods over the range of one parameter of each problem; by default in a full run.",
        ),
    ] = None,
) -> None:
    """Measures the bias and the cost of signal of methods against exact values, and their learning at equal tokens.

    Without options it runs every method on every problem. After an interruption it continues.

    \b
    Examples:
      hf-credit bench --method rloo --problem key --dial horizon=32 --seeds 0
      hf-credit bench --method my_package:my_method --method ppo --problem chain
      hf-credit bench --output creditbench --guide docs/which-method.md
    """
    from hf_credit.bench import cells
    from hf_credit.bench import guide as pages
    from hf_credit.bench.measures import POLICIES, make_problem
    from hf_credit.bench.play import REFERENCES, Critic
    from hf_credit.bench.problems import PROBLEMS
    from hf_credit.evaluation.plots import require_matplotlib
    from hf_credit.evaluation.statistics import mean_with_interval
    from hf_credit.methods import METHODS
    from hf_credit.registry import find
    from hf_credit.trust import is_code
    from hf_credit.validators import one_of

    one_of("critic", critic, get_args(Critic))
    for name in policy or ():
        one_of("policy", name, tuple(POLICIES))
    dials = parse_options(dial)
    for name in problem or PROBLEMS:
        make_problem(name, **dials)
    for name in method or ():
        if not is_code(name) and name not in REFERENCES:  # the user's code is imported in its cell, which shows errors
            find("method", METHODS, name)
    if seeds > 1:  # a missing library is an error before the work
        require_matplotlib()
        mean_with_interval([0.0, 1.0])
    policies = tuple(policy or ("start", "solved"))
    settings: dict[str, Any] = {"critic": critic, "oracle_error": oracle_error, "updates": updates}
    todo = cells.jobs(method or None, problem or None, dials, policies, seeds=seeds, **settings)
    if along_dials is None:
        along_dials = not (method or problem or dials)
    if guide is not None and seeds < 2 and not along_dials:
        raise ValueError(f"--guide needs at least 2 seeds, got {seeds}; raise --seeds or omit --guide.")
    if along_dials:
        todo += cells.along_dials(**settings)
    path = output / "cells.jsonl"
    cells.take_up(output)
    done, failed = cells.read(path), []
    with Progress() as progress:
        task = progress.task("cells", len(todo))
        task.begin_at(sum(job.key in done for job in todo))
        for cell in cells.run(todo, path, processes):
            task.advance(note=f"{cell['method']} in {cell['problem']}")
            failed += [cell] if cell["failed"] else []
    known = cells.read(path)
    filled = [known[job.key] for job in todo if job.key in known]
    for cell in failed:
        typer.echo(f"{cell['method']} in {cell['problem']} failed:\n{cell['failed']}", err=True)
    if filled:
        shown = cells.with_earlier(filled, cells.under(list(known.values()), critic, oracle_error))
        pages.write_parquet(list(known.values()), output / "cells.parquet")
        write(output / "tables.md", pages.tables(shown))
        if seeds > 1 or along_dials:
            asked: dict[str, Any] = {"critic": "exact", "oracle_error": 0.0, "updates": updates}
            perfect = cells.jobs(method or None, problem or None, dials, ("start",), seeds=seeds, **asked)
            exact = [] if asked == settings else [known[job.key] for job in perfect if job.key in known]
            _write_pages(output, guide, shown, exact)
        listed = f"{len(filled)} cells are in {output}; read {output / 'tables.md'}."
        typer.echo(pages.tables(filled) if len(filled) <= 8 else listed)
        if push_to_hub is not None:
            from hf_credit.hub.cell_sets import publish_cells

            typer.echo(f"The cells are published: {publish_cells(output, push_to_hub).url}")
    if failed:
        raise ValueError(
            f"methods must run without errors, got {len(failed)} failed cells, the first {failed[0]['method']} in "
            f"{failed[0]['problem']}; correct the errors above and run again: only failed cells are measured again."
        )


def _write_pages(output: Path, guide: Path | None, cells: list[Any], exact: list[Any]) -> None:
    from hf_credit.bench import plots
    from hf_credit.bench.guide import which_method

    drawn = [file.stem for file in plots.draw(cells, output)]
    command = f"hf-credit {shlex.join(sys.argv[1:])}"
    write(output / "index.md", which_method(cells, command, "", drawn, exact))
    if guide is not None:
        write(guide, which_method(cells, command, f"{os.path.relpath(output, guide.parent)}/", drawn, exact))
