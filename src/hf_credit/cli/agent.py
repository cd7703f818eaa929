"""`hf-credit agent`: checks programs that call a model, before training."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hf_credit.cli.options import parse_options
from hf_credit.cli.progress import be_quiet

agent = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@agent.callback()
def _agent() -> None:
    """Checks programs that call a model through an SDK, which `hf-credit train` trains as the task `agent`."""


@agent.command(short_help="Check whether a program is deterministic.")
def check(
    name: Annotated[
        str, typer.Argument(metavar="AGENT", help="A program, as module:name, or a command in quotes. It is run.")
    ],
    tasks: Annotated[str, typer.Option(help="Task rows: a file, or an id on the Hub.")],
    split: Annotated[str, typer.Option(help="Split of the task rows, if there are splits.")] = "train",
    rows: Annotated[int, typer.Option(help="Number of task rows to run, from the first.", min=1)] = 4,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="A setting of the program.")
    ] = None,
) -> None:
    """Runs a program twice on some tasks, with dummy replies, and restores its state before each model call.

    Methods that replay need a deterministic program. If this program is not deterministic, the command shows the call,
    the message and the part that differs, and exits with code 1.

    \b
    Examples:
      hf-credit agent check my_agent:sql_agent --tasks tasks.jsonl
      hf-credit agent check "node agent.js" --tasks tasks.jsonl --option columns='["question"]'
    """
    from hf_credit.agents.check import SETTLE
    from hf_credit.agents.check import check as checked
    from hf_credit.agents.interaction import AgentInteraction
    from hf_credit.rollouts.dry_run import first_rows
    from hf_credit.tasks.rows import load_splits, require_split

    be_quiet()
    options: dict[str, Any] = parse_options(option)
    found_rows = require_split(load_splits(tasks, split), split, "set --split")
    interaction = AgentInteraction(name, **options)
    try:
        interaction.require_columns(found_rows.column_names)
        one_at_a_time = not (interaction.settings.settle or "settle" in options)
        if one_at_a_time:
            interaction.settle_for(SETTLE)
        found = checked(interaction, first_rows(found_rows, rows))
    finally:
        interaction.close()
    ended = ", ".join(f"{count} {status}" for status, count in sorted(found.statuses.items())) or "none ended"
    typer.echo(f"{found.tasks} tasks run twice; in the first runs {found.calls} model calls and {ended}.")
    if found.restored:
        typer.echo(f"{found.restored} states restored, {1000 * found.seconds / found.restored:.0f} ms each.")
    if found.kept[1]:
        kept, total = found.kept
        typer.echo(
            f"{kept} of {total} replies returned unchanged in later calls"
            + ("." if kept == total else "; each changed reply starts a new row in training.")
        )
    if found.together > 1:
        remedy = "; train it with settle=0.02 or more" if one_at_a_time else ""
        typer.echo(f"It makes up to {found.together} simultaneous calls{remedy}.")
    for problem in found.problems:
        typer.echo(f"  {problem}")
    if found.problems:
        typer.echo(
            "It is not deterministic: correct this for methods that replay, or train it with repeats=False."
            if found.differences
            else "It cannot be trained: correct this."
        )
        raise typer.Exit(1)
    typer.echo("It is deterministic, so every method can train it.")
