"""`hf-credit credit`: the advantage of each reply in recorded traces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hf_credit.cli.options import MethodOptions, parse_options
from hf_credit.cli.progress import print_rows
from hf_credit.files import write
from hf_credit.words import counted

_MAX_FAILURES_SHOWN = 10


def credit(
    traces: Annotated[Path, typer.Argument(help="A file of JSON lines, one trace per line.", show_default=False)],
    method: Annotated[str, typer.Option(help="A method, or module:factory, that needs no replays.")],
    method_option: MethodOptions = None,
    out: Annotated[Path | None, typer.Option(help="Write JSON lines to this file, one per reply.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write the shown trace to this file as HTML.")] = None,
    line: Annotated[
        int | None,
        typer.Option(
            help="Line of the trace to show; by default the trace with the largest credit differences.", min=1
        ),
    ] = None,
) -> None:
    """Assigns credit to the replies of recorded traces, without a model.

    A trace is a line of JSON with the messages of chat completions, or with the turns of an OpenEnv TrainingTrace. Its
    outcome is the field reward, score or outcome, or the sum of rewards, which has one number per reply. Traces of one
    task form a group: they share task_id, group_id, group or task or, without these, the messages before the first
    reply. Lines that cannot be read are skipped and reported.

    \b
    Examples:
      hf-credit credit traces.jsonl --method turn_credit
      hf-credit credit traces.jsonl --method grpo --out credit.jsonl
      hf-credit credit traces.jsonl --method mt_grpo --method-option turn_weight=0.5 --page trace.html
    """
    options = parse_options(method_option)
    from hf_credit import methods

    made = methods.make(method, **options)  # refused before the imports, which take seconds
    from hf_credit.evaluation.credit_tables import in_one_line, short_reply
    from hf_credit.evaluation.episode_page import rounded, write_episode_page
    from hf_credit.evaluation.traces import credit_traces

    found = credit_traces(traces, made)
    lines = [trace.line for trace in found.traces]
    if line is not None and line not in lines:
        raise ValueError(f"--line must be a line with a readable trace, got {line}; choose another line.")
    shown = found.largest_spread if line is None else lines.index(line)
    episode = found.episode(shown)
    alone = sum(count == 1 for count in found.groups.values())
    replies = counted(sum(map(len, found.credit)), "reply", "replies")
    typer.echo(f"{counted(len(lines), 'trace')} of {counted(len(found.groups), 'task')} with {replies}.")
    if alone:
        typer.echo(f"Tasks with only one trace, which is compared with none: {alone}.")
    for sentence in found.absent:
        typer.echo(sentence)
    name = in_one_line(found.traces[shown].name)
    rewarded = ["reward"] if any(one.reward for one in episode.decisions) else []  # others are scored as a whole
    rows = [
        [
            str(turn),
            in_one_line(one.role),
            short_reply(one),
            *(rounded(one.reward, ".3g") for _ in rewarded),
            "none" if one.credit is None else rounded(one.credit, "+.3g"),
        ]
        for turn, one in enumerate(episode.decisions)
    ]
    title = f"Trace {name} (line {lines[shown]}), outcome {episode.outcome:.3g}"
    print_rows(["turn", "role", "reply", *rewarded, "advantage"], rows, title)
    say_skipped(found.failures)
    if out is not None:
        write(out, "".join(json.dumps(row) + "\n" for row in found.rows()))
        typer.echo(f"Wrote {out}")
    if page is not None:
        typer.echo(f"Wrote {write_episode_page(episode, page, title, method=found.method)}")


def say_skipped(failures: Sequence[tuple[int, str]]) -> None:
    """Prints the lines of a file that could not be used, with why, on stderr."""
    from hf_credit.redaction import written_out

    for number, error in failures[:_MAX_FAILURES_SHOWN]:
        typer.echo(f"Skipped line {number}: {written_out(error)}", err=True)
    if len(failures) > _MAX_FAILURES_SHOWN:
        typer.echo(f"Skipped {len(failures) - _MAX_FAILURES_SHOWN} more lines.", err=True)
