"""`hf-credit evaluate`: a policy on held-out tasks, with intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.options import EnvironmentOptions, parse_options
from hf_credit.cli.progress import Progress, Task

if TYPE_CHECKING:
    from hf_credit.evaluation.games import GameResults
    from hf_credit.evaluation.setup import GameSetup


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder with a policy, or an id on the Hub.")],
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            "--environment",
            metavar="TASK",
            help="The game or the collaboration; as noted beside the model if left out.",
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(help="Tasks to play, one episode each; 256, or all of a dataset, if left out.", min=2),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Task rows: a file or an id on the Hub; the task's own if left out."),
    ] = None,
    split: Annotated[str, typer.Option(help="Of the dataset, if it has any.")] = "test",
    option: EnvironmentOptions = None,
    oracle: Annotated[str | None, typer.Option(help="Who judges actions of a game; its own if left out.")] = None,
    oracle_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the oracle.")
    ] = None,
    history: Annotated[str | None, typer.Option(help="append or current; as in training if left out.")] = None,
    instructions: Annotated[
        bool | None, typer.Option(help="Whether prompts open with the instructions; as in training if left out.")
    ] = None,
    max_turns: Annotated[int | None, typer.Option(help="Most actions of an episode.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Longest reply in tokens; as in training.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the sampling; 0 is greedy. As in training.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Nucleus of the sampling, 1 for all. As in training.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Tokens to draw from, 0 for all. As in training.")] = None,
    first_task: Annotated[int, typer.Option(help="Index of the first task.", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="Of the sampling; the tasks do not depend on it.", min=0)] = 0,
    batch_size: Annotated[int, typer.Option(help="Episodes under way at once.", min=1)] = 256,
    device: Annotated[str | None, typer.Option(help="Such as cuda:0; a GPU if there is one.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write every episode; `report` finds evaluation*.json in a run's folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON on stdout.")] = False,
) -> None:
    """Plays held-out tasks with a policy and reports each number with its 95% bootstrap interval.

    A policy made by `init-policy` or `train` knows its task and how it was shown; options change that.

    \b
    Examples:
      hf-credit evaluate runs/sudoku_vpr --episodes 512
      hf-credit evaluate runs/sudoku_vpr --episodes 512 --json --output runs/sudoku_vpr/evaluation.json
      hf-credit evaluate Qwen/Qwen3-4B --task sudoku --episodes 64 --max-new-tokens 4096
      hf-credit evaluate runs/math_c3 --dataset math500.jsonl --temperature 0
      hf-credit evaluate runs/tic_tac_toe_vpr --option opponent=mcts --option opponent_simulations=1000
    """
    from hf_credit.cli.evaluating import evaluate_model
    from hf_credit.cli.quiet import be_quiet
    from hf_credit.cli.tasks import require_trusted
    from hf_credit.evaluation.statistics import mean_interval
    from hf_credit.oracles import make as make_oracle

    options = parse_options(option)
    setup = setup_for(model, task, options)
    require_trusted(setup, model, options)
    shown = _given(history=history, instructions=instructions, max_turns=max_turns)
    drawn = _given(max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, top_k=top_k)
    setup = replace(setup, **shown, sampling=replace(setup.sampling, **drawn))
    if oracle_option and not oracle:
        raise ValueError(f"--oracle-option needs --oracle, got {oracle_option} without; name the oracle.")
    judge = make_oracle(oracle, **parse_options(oracle_option)) if oracle else None
    be_quiet()
    mean_interval([0.0, 1.0], resamples=2)  # what is missing for statistics is told before the games, not after
    with Progress() as progress:
        turns: list[Task] = []
        results = evaluate_model(
            model,
            setup,
            episodes,
            oracle=judge,
            dataset=dataset,
            split=split,
            first_task=first_task,
            seed=seed,
            max_concurrent=batch_size,
            device=device,
            on_begin=lambda most: turns.append(progress.task("turns", most)),
            on_replies=lambda replies: turns[0].advance(replies),
        )
        turns[0].finish()
    if output is not None:
        output.write_text(results.to_json(), encoding="utf-8")
    (_print_json if as_json else _print_table)(results)


def setup_for(model: str, task: str | None, options: dict[str, Any]) -> GameSetup:
    """The setup beside the model, with other options where they are given; or that of another task.

    Raises:
        ValueError: neither the model nor the caller names a task.
    """
    from hf_credit.evaluation.setup import SETUP_FILE, GameSetup

    known = GameSetup.load(model)
    if known is None:
        if task is None:
            raise ValueError(f"a task must be named, got none and no {SETUP_FILE} beside {model!r}; add --task.")
        return GameSetup.of(task, options)
    return known.with_options(options) if task in (None, known.name) else known.on(task, options)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _print_json(results: GameResults) -> None:
    import json

    from hf_credit.evaluation.report import interval_dict

    metrics = {name: interval_dict(interval) for name, interval in results.summary().items()}
    typer.echo(json.dumps({**results.about, "episodes": len(results.records), "metrics": metrics}, indent=2))


def _print_table(results: GameResults) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from hf_credit.evaluation.report import results_rows

    table = Table("", "mean [95% interval]", box=box.SIMPLE_HEAD)
    for row in results_rows({"policy": results}):
        table.add_row(*row)
    Console().print(table)
    failed = next((record.error for record in results.records if record.error), None)
    if failed is not None:
        typer.echo(f"At least one episode ended in an error, for example: {failed}", err=True)
