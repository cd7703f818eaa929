"""`hf-credit credit`: what each reply of recorded traces deserves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hf_credit.cli.options import parse_options

_SHOWN = 10  # of what could not be read


def credit(
    traces: Annotated[Path, typer.Argument(help="A file of JSON lines, a trace each.", show_default=False)],
    method: Annotated[str, typer.Option(help="A method, or module:factory, that needs no replays.")],
    method_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the method; give it several times.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A file to write, a line of JSON each reply.")] = None,
    page: Annotated[Path | None, typer.Option(help="A file to write: the trace that is shown, as HTML.")] = None,
    line: Annotated[
        int | None, typer.Option(help="The line of the trace to show; the one whose credits differ most.", min=1)
    ] = None,
) -> None:
    """Gives credit to the replies of traces that were recorded elsewhere, without a model.

    A trace is a line of JSON with the messages of chat completions, or with the turns of an OpenEnv TrainingTrace, and
    what it was worth: reward, score or outcome, or rewards with a number for each reply. Traces of one task (task_id,
    group_id, group or task; or else the same messages before the first reply) are compared. A line that cannot be
    read is counted and left out.

    \b
    Examples:
      hf-credit credit traces.jsonl --method turn_credit
      hf-credit credit traces.jsonl --method grpo --out credit.jsonl
      hf-credit credit traces.jsonl --method mt_grpo --method-option turn_weight=0.5 --page trace.html
    """
    from hf_credit import methods
    from hf_credit.cli.progress import print_rows
    from hf_credit.evaluation.credit_tables import in_a_line, said
    from hf_credit.evaluation.episode_page import rounded, write_episode_page, written_out
    from hf_credit.evaluation.traces import credit_traces

    found = credit_traces(traces, methods.make(method, **parse_options(method_option)))
    lines = [trace.line for trace in found.traces]
    if line is not None and line not in lines:
        raise ValueError(f"a line must hold a trace that can be read, got {line}; choose another one.")
    shown = found.most_telling if line is None else lines.index(line)
    episode = found.episode(shown)
    alone = sum(count == 1 for count in found.groups.values())
    typer.echo(f"Traces: {len(lines)}, of tasks: {len(found.groups)}, with replies: {sum(map(len, found.credit))}.")
    if alone:
        typer.echo(f"The only ones of their tasks, with none to be compared with: {alone}.")
    name = in_a_line(found.traces[shown].name)
    rows = [
        [
            str(turn),
            in_a_line(one.role),
            said(one),
            rounded(one.reward, ".3g"),
            "none" if one.credit is None else rounded(one.credit, "+.3g"),
        ]
        for turn, one in enumerate(episode.decisions)
    ]
    title = f"Trace {name} (line {lines[shown]}), outcome {episode.outcome:.3g}"
    print_rows(["turn", "role", "reply", "reward", "advantage"], rows, title)
    for number, error in found.failures[:_SHOWN]:
        typer.echo(f"line {number} is left out: {written_out(error)}", err=True)
    if len(found.failures) > _SHOWN:
        typer.echo(f"and {len(found.failures) - _SHOWN} more", err=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in found.rows())
        typer.echo(f"Wrote {out}")
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        typer.echo(f"Wrote {write_episode_page(episode, page, title, method=found.method)}")
