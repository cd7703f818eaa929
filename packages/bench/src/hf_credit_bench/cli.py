"""The command `hf-credit bench`, which hf-credit finds by its entry point: compares methods by exact values."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hf_credit.cli.options import parse_options
from hf_credit.cli.progress import Progress, show_markdown
from hf_credit.cli.publish import Private, show

commands = typer.Typer()


@commands.command(short_help="Measure methods against exact values.")
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
    critic: Annotated[
        str, typer.Option(help="Predictions of critics: exact, noisy, taught (learned) or untaught (0).")
    ] = "taught",
    oracle_error: Annotated[
        float, typer.Option(min=0, max=0.5, help="The probability of a judge's wrong verdict, unless a dial says it.")
    ] = 0.1,
    seeds: Annotated[int, typer.Option(min=0, help="Number of training runs, one per seed; 0 only scores.")] = 10,
    updates: Annotated[int, typer.Option(min=8, help="Number of updates per score.")] = 24,
    processes: Annotated[int | None, typer.Option(min=1, help="Parallel processes; by default one per core.")] = None,
    output: Annotated[
        Path, typer.Option(help="Output folder; cells that it already contains are not measured again.")
    ] = Path("creditbench"),
    push_to_hub: Annotated[
        str | None, typer.Option(metavar="REPO", help="Publish the cells as a dataset: owner/name.")
    ] = None,
    private: Private = False,
    guide: Annotated[Path | None, typer.Option(help="Also write the page of recommendations to this file.")] = None,
) -> None:
    """Measures the bias and the cost of signal of methods against exact values, and their learning at equal tokens.

    Without a method, problem or dial it fills the fields of length and success at the start: the references first,
    then methods where these say that something can be gained. After an interruption it continues.

    \b
    Examples:
      hf-credit bench --method rloo --problem key --dial horizon=32 --seeds 0
      hf-credit bench --method my_package:my_method --method ppo --problem chain
      hf-credit bench --output creditbench --guide docs/which-method.md
    """
    from hf_credit.evaluation.plots import require_matplotlib
    from hf_credit.evaluation.statistics import mean_with_interval
    from hf_credit_bench import cells, fields
    from hf_credit_bench.plots import write_pages

    dials, full = parse_options(dial), not (method or problem or dial)
    settings: dict[str, Any] = {"critic": critic, "seeds": seeds, "updates": updates}
    if full and oracle_error != 0.1:
        raise ValueError(f"--oracle-error is of named methods or problems, got {oracle_error} alone; name some.")
    if pages := seeds > 1:
        require_matplotlib()  # before the work
        mean_with_interval([0.0, 1.0])
    elif guide is not None or full:
        raise ValueError(f"a guide needs at least 2 seeds, got {seeds}; raise --seeds, or name methods and problems.")
    done, failed = cells.take_up(output), []

    def todo() -> list[cells.Job]:
        known = [cell for cell in done.values() if not cell.get("failed")]
        if full:
            return fields.plan(known, **settings)
        named = {"oracle_error": oracle_error, **settings}
        return cells.jobs(method or None, problem or None, dials, **named)

    with Progress() as progress:
        while waiting := [job for job in todo() if job.key not in done]:
            task = progress.task("cells", len(waiting))
            for cell in cells.run(waiting, output / cells.LINES, processes):
                task.advance(note=f"{cell['method']} in {cell['problem']}")
                done[cell["key"]] = dict(cell)
                failed += [cell] if cell["failed"] else []
    for cell in failed:
        typer.echo(f"{cell['method']} in {cell['problem']} failed:\n{cell['failed']}", err=True)
    command = f"hf-credit {shlex.join(sys.argv[1:])}"
    if shown := write_pages(output, todo(), critic, command if pages else None, guide):
        show_markdown(shown)
        if push_to_hub is not None:
            from hf_credit_bench import publish_cells

            show(publish_cells(output, push_to_hub, private=private))
    if failed:
        raise ValueError(
            f"methods must run without errors, got {len(failed)} failed cells, the first {failed[0]['method']} in "
            f"{failed[0]['problem']}; correct the errors above and run again: only failed cells are measured again."
        )
