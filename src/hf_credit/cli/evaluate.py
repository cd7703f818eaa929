"""`hf-credit evaluate`: a policy on held-out tasks, with intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.options import (
    AsJson,
    BatchSizeOption,
    DatasetOption,
    DeviceOption,
    EnvironmentOptions,
    FirstTaskOption,
    HistoryOption,
    InstructionsOption,
    MaxNewTokensOption,
    MaxTurnsOption,
    OracleOption,
    OracleOptions,
    RoleModels,
    SplitOption,
    TaskOption,
    TopKOption,
    TopPOption,
    TrustOption,
    given,
    named_oracle,
    parse_options,
    parse_role_models,
)
from hf_credit.cli.progress import Progress, Task, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hf_credit.evaluation.results import EvalResults
    from hf_credit.rollouts import Episode, RolloutRequest
    from hf_credit.tasks import TaskSpec


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder with a policy, or an id on the Hub.")],
    task: TaskOption = None,
    episodes: Annotated[
        int | None,
        typer.Option(help="Tasks to play, one episode each; 256, or all of a dataset, if left out.", min=2),
    ] = None,
    dataset: DatasetOption = None,
    split: SplitOption = "test",
    option: EnvironmentOptions = None,
    oracle: OracleOption = None,
    oracle_option: OracleOptions = None,
    role_model: RoleModels = None,
    history: HistoryOption = None,
    instructions: InstructionsOption = None,
    max_turns: MaxTurnsOption = None,
    max_new_tokens: MaxNewTokensOption = None,
    temperature: Annotated[float | None, typer.Option(help="Of the sampling; 0 is greedy. As in training.")] = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    first_task: FirstTaskOption = 0,
    seed: Annotated[int, typer.Option(help="Of the sampling; the tasks do not depend on it.", min=0)] = 0,
    batch_size: BatchSizeOption = 256,
    device: DeviceOption = None,
    trust_remote_code: TrustOption = False,
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write every episode; `report` finds evaluation*.json in a run's folder."),
    ] = None,
    save_episodes: Annotated[
        Path | None, typer.Option(help="A new folder for the episodes themselves, for `publish episodes`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plays held-out tasks with a policy and reports each number with its 95% interval.

    A policy made by `init-policy` or `train` knows its task and how it was shown; options change that.

    \b
    Examples:
      hf-credit evaluate runs/sudoku_vpr --episodes 512
      hf-credit evaluate runs/sudoku_vpr --episodes 512 --json --output runs/sudoku_vpr/evaluation.json
      hf-credit evaluate Qwen/Qwen3-4B --task sudoku --episodes 64 --max-new-tokens 4096
      hf-credit evaluate runs/math_c3 --dataset math500.jsonl --temperature 0
      hf-credit evaluate runs/tic_tac_toe_vpr --option opponent=mcts --option opponent_simulations=1000
    """
    from hf_credit.cli.quiet import be_quiet

    be_quiet()  # before the libraries that have something to say when they are imported
    from hf_credit.evaluation.play import evaluate_model
    from hf_credit.evaluation.statistics import mean_interval

    options = parse_options(option)
    spec = spec_for(model, task, options, trust_remote_code)
    shown = given(history=history, instructions=instructions, max_turns=max_turns)
    drawn = given(max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, top_k=top_k)
    told, spec = spec, replace(spec, **shown, sampling=replace(spec.sampling, **drawn))
    warn_unlike(spec, told, model)
    speakers = parse_role_models(role_model)
    judge = named_oracle(oracle, oracle_option)
    mean_interval([0.0, 1.0], resamples=2)  # what is missing for statistics is told before the games, not after
    with Progress() as progress:
        turns: list[Task] = []
        results = evaluate_model(
            model,
            spec,
            episodes,
            oracle=judge,
            role_models=speakers,
            dataset=dataset,
            split=split,
            first_task=first_task,
            seed=seed,
            max_concurrent=batch_size,
            device=device,
            trust_remote_code=trust_remote_code,
            on_begin=lambda most: turns.append(progress.task("turns", most)),
            on_replies=lambda replies: turns[0].advance(replies),
            on_episodes=None if save_episodes is None else _saving(save_episodes, model, spec),
        )
        turns[0].finish()
    if output is not None:
        output.write_text(results.to_json(), encoding="utf-8")
    (_print_json if as_json else _print_table)(results)
    warn_of_own_replies(results.about)


def warn_of_own_replies(about: Mapping[str, Any]) -> None:
    """Says for which roles that nothing is learned from the policy itself replied."""
    for role, name in about.get("role_models", {}).items():
        if name is None:
            typer.echo(
                f"Warning: the policy itself replied for {role!r}; --role-model {role}=MODEL names another.", err=True
            )


def _saving(
    folder: Path, model: str, spec: TaskSpec
) -> Callable[[Sequence[RolloutRequest[Any]], Sequence[Episode]], None]:
    """Writes episodes to a folder, in the form in which they are published."""
    from hf_credit.hub.episode_sets import EpisodeSet, save_episodes

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"--save-episodes must name a new or an empty folder, got {str(folder)!r}; name another one.")

    def save(starts: Sequence[RolloutRequest[Any]], episodes: Sequence[Episode]) -> None:
        from transformers import AutoTokenizer

        from hf_credit.rollouts import Chat

        chat = Chat(AutoTokenizer.from_pretrained(model), spec.chat_template_kwargs)
        policy = Path(model).resolve().name if Path(model).is_dir() else model
        played = EpisodeSet(episodes=tuple(episodes), interaction=spec.build(), starts=tuple(starts), policy=policy)
        save_episodes(folder, played, chat=chat)

    return save


def spec_for(
    model: str,
    task: str | None,
    options: dict[str, Any],
    trust_remote_code: bool = False,
    typed: frozenset[str] = frozenset(),
) -> TaskSpec:
    """The spec beside the model, with other options where they are given; or that of another task.

    Args:
        model: a folder or an id on the Hub.
        task: its name, that of the spec if `None`.
        options: what the user said, who may name code.
        trust_remote_code: whether the spec may, too.
        typed: further code that the user named, which the spec may name.

    Raises:
        ValueError: there is no such model, or neither it nor the caller names a task.
    """
    from hf_credit.http_guard import require_model
    from hf_credit.registry import search_here
    from hf_credit.tasks import TASK_FILE, TaskSpec

    require_model(model)
    known = TaskSpec.load(model)
    if known is None:
        if task is None:
            raise ValueError(f"a task must be named, got none and no {TASK_FILE} beside {model!r}; add --task.")
        return TaskSpec.of_name(task, options)
    known = replace(known, trusted=trust_remote_code, typed=typed)
    if trust_remote_code:
        search_here(known.code())
    if task not in (None, known.name):
        return known.on(task, options)
    return replace(known, typed=typed | ({task} if task else set())).with_options(options)


def warn_unlike(spec: TaskSpec, known: TaskSpec | None, model: str) -> None:
    """Says on stderr where a task is shown otherwise than the policy knows it."""
    told = spec.shown_unlike(known, model)
    if told is not None:
        typer.echo(f"Warning: {told}", err=True)


def _print_json(results: EvalResults) -> None:
    import json

    from hf_credit.evaluation.report import interval_dict

    metrics = {name: interval_dict(interval) for name, interval in results.summary().items()}
    typer.echo(json.dumps({**results.about, "episodes": len(results.records), "metrics": metrics}, indent=2))


def _print_table(results: EvalResults) -> None:
    from rich import box
    from rich.table import Table

    from hf_credit.evaluation.report import results_rows

    table = Table("", "mean [95% interval]", box=box.SIMPLE_HEAD)
    for row in results_rows({"policy": results}):
        table.add_row(*row)
    print_table(table)
    failed = next((record.error for record in results.records if record.error), None)
    if failed is not None:
        typer.echo(f"At least one episode ended in an error, for example: {failed}", err=True)
