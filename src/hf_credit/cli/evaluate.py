"""`hf-credit evaluate`: plays held-out tasks with a policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.options import AsJson, ModelArgument, Played, named_oracle, warn_of_own_replies, with_options
from hf_credit.cli.progress import Progress, be_quiet, print_rows
from hf_credit.files import write
from hf_credit.redaction import written_out
from hf_credit.words import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hf_credit.rollouts import Episode, RolloutRequest
    from hf_credit.tasks import TaskSpec


@with_options("played", Played)
def evaluate(
    model: ModelArgument,
    episodes: Annotated[
        int | None,
        typer.Option(help="Number of tasks to play, one episode each; by default 256, or all of a dataset.", min=2),
    ] = None,
    *,
    played: Played,
    seed: Annotated[int, typer.Option(help="Seed of the sampling; the tasks do not depend on it.", min=0)] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="File for the result of each episode; `report` reads evaluation*.json in a run's folder.",
        ),
    ] = None,
    save_episodes: Annotated[
        Path | None, typer.Option(help="New folder to save the episodes to, for `publish episodes`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plays held-out tasks with a policy and reports each metric with its 95% confidence interval.

    The folder of a policy from `init-policy` or `train` records its task, prompt and sampling settings; options
    override them.

    \b
    Examples:
      hf-credit evaluate runs/sudoku_micro --episodes 512
      hf-credit evaluate runs/sudoku_micro --episodes 512 --json --output runs/sudoku_micro/evaluation.json
      hf-credit evaluate Qwen/Qwen3-4B --task sudoku --episodes 64 --max-new-tokens 4096
      hf-credit evaluate runs/qwen3_4b_math --dataset math500/test --temperature 0
      hf-credit evaluate runs/tic_tac_toe_vpr --option opponent=mcts --option opponent_simulations=1000
    """
    be_quiet()  # before the imports that print warnings
    spec = played.spec(model)  # before seconds of imports, as it raises if the task cannot be played
    from hf_credit.evaluation.play import evaluate_model
    from hf_credit.evaluation.statistics import mean_interval

    mean_interval([0.0, 1.0])  # a missing library is an error before the episodes
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
    save = None if save_episodes is None else _saving(save_episodes, model, spec, played.trust_remote_code)
    with Progress() as progress, progress.playing("episodes"):
        results = evaluate_model(
            model,
            spec,
            episodes,
            oracle=named_oracle(played.oracle, played.oracle_option),
            dataset=played.dataset,
            split=played.split,
            first_task=played.first_task,
            seed=seed,
            on_episodes=save,
            **played.loading(),
        )
    if output is not None:
        write(output, results.to_json())
    if as_json:
        found = {**results.about, "episodes": len(results.records), "metrics": plain(results.summary())}
        typer.echo(json.dumps(found, indent=2))
    else:
        from hf_credit.evaluation.report import results_rows

        print_rows(["", "mean [95% interval]"], results_rows({"policy": results}))
        if costs := results.about.get("verdicts"):
            typer.echo("Verdicts: " + ", ".join(f"{count:,} {name}" for name, count in costs.items()))
        failed = next((record.error for record in results.records if record.error), None)
        if failed is not None:
            typer.echo(f"At least one episode ended in an error, for example: {written_out(failed)}", err=True)
    warn_of_own_replies(results.about)


def _saving(
    folder: Path, model: str, spec: TaskSpec, trust_remote_code: bool
) -> Callable[[Sequence[RolloutRequest[Any]], Sequence[Episode]], None]:
    """Returns a function that writes episodes to a folder as `publish episodes` reads them."""
    from hf_credit.hub.episode_sets import EpisodeSet, save_episodes

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"--save-episodes must be a new or empty folder, got {str(folder)!r}; name another folder.")

    def save(starts: Sequence[RolloutRequest[Any]], episodes: Sequence[Episode]) -> None:
        from hf_credit.loading import load_processing_class
        from hf_credit.rollouts import Chat

        chat = Chat(load_processing_class(model, trust_remote_code), spec.chat_template_kwargs)
        policy = Path(model).resolve().name if Path(model).is_dir() else model
        played = EpisodeSet(episodes=tuple(episodes), interaction=spec.build(), starts=tuple(starts), policy=policy)
        save_episodes(folder, played, chat=chat)

    return save
