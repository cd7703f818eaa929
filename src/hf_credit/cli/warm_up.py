"""`hf-credit warm-up`: supervised training of any model on a task, before it is trained by its own play."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.credit import say_skipped
from hf_credit.cli.options import named_oracle, with_options
from hf_credit.cli.played import ModelArgument, Prompted
from hf_credit.cli.progress import Progress, Task, print_rows
from hf_credit.files import write

if TYPE_CHECKING:
    from hf_credit.evaluation.results import EvalResults
    from hf_credit.policies.demonstrations import Demonstration
    from hf_credit.policies.scripted import Walk
    from hf_credit.rollouts import Chat, Interaction, RolloutRequest
    from hf_credit.rollouts.scripts import Script
    from hf_credit.tasks import TaskSpec

_EPISODES = 512  # of tasks that the task makes itself


@with_options("prompted", Prompted)
def warm_up(
    context: typer.Context,
    model: ModelArgument,
    output: Annotated[Path, typer.Option(help="Output folder, from which `train` and `evaluate` go on.")],
    *,
    prompted: Prompted,
    recipe: Annotated[
        str | None, typer.Option(help="Take the task, its rows and all settings of prompts from this recipe.")
    ] = None,
    traces: Annotated[
        list[Path] | None,
        typer.Option(help="Learn from these: episodes.jsonl of a run, or chat logs as for `credit`; repeatable."),
    ] = None,
    script: Annotated[
        str | None,
        typer.Option(help="Learn from module:function(state, request, random), or module:Class made with --quality."),
    ] = None,
    oracle: Annotated[
        str | None, typer.Option(help="Learn from the play of this oracle; by default of the task's own player.")
    ] = None,
    oracle_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of --oracle; repeatable.")
    ] = None,
    quality: Annotated[float, typer.Option(help="Probability that the player plays well.")] = 1.0,
    episodes: Annotated[
        int | None, typer.Option(help=f"Episodes to play; by default {_EPISODES}, or the rows of a dataset.", min=1)
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Task rows to play: a file or an id on the Hub; by default those of the task.")
    ] = None,
    split: Annotated[str, typer.Option(help="Split of the dataset, if it has splits.")] = "train",
    min_success: Annotated[
        float, typer.Option(help="Learn from episodes with at least this success (outcome without one); -1 for all.")
    ] = 1.0,
    held_out: Annotated[
        float,
        typer.Option(help="Share of tasks that are not learned, for a held-out loss.", min=0, max=0.9),
    ] = 0.1,
    evaluate: Annotated[
        int, typer.Option(help="Held-out tasks to play before and after, one episode each; 0 for none.", min=0)
    ] = 0,
) -> None:
    """Trains a model on the replies of an oracle, a script or recorded episodes, with TRL's SFTTrainer.

    It reads the tokens that a later training has: the same prompts, history, tools and ends of replies. All other
    options are fields of TRL's SFTConfig and ModelConfig, such as --learning_rate, --max_steps, --use_peft,
    --resume_from_checkpoint true. No sequence is truncated: max_length leaves longer ones out.

    \b
    Examples:
      hf-credit warm-up Qwen/Qwen3-0.6B --task sudoku -o size=4 --output runs/sudoku_warm --max_steps 100
      hf-credit warm-up Qwen/Qwen3-0.6B --recipe recipe.yaml --script my_agent:Player --output runs/warm --use_peft
      hf-credit warm-up runs/warm --traces runs/trained/episodes.jsonl --output runs/warmer
      hf-credit warm-up Qwen/Qwen3-0.6B --traces logs.jsonl --output runs/from_logs
    """
    from hf_credit.cli.quiet import be_quiet

    be_quiet()
    if traces and (script or oracle or dataset or episodes):
        raise ValueError("--traces are learned as they are, got a player or tasks beside them; leave these out.")
    if script and oracle:
        raise ValueError(f"one player plays, got --script {script!r} and --oracle {oracle!r}; leave one of them out.")
    if recipe and (prompted.task or dataset):
        raise ValueError(f"a recipe names its task and rows, got {recipe!r} beside others; leave these out.")
    from transformers import PrinterCallback, ProgressCallback

    from hf_credit.cli.training_progress import ShowProgress
    from hf_credit.evaluation.report import results_rows
    from hf_credit.policies.demonstrations import demonstrations, hold_out, select
    from hf_credit.trainers.training import resumption
    from hf_credit.trainers.warm_up import limits, load_chat, read_settings, save, trainer_of

    job = _job(recipe, model)
    args, config = read_settings(model, context.args, output, prompted.trust_remote_code)
    spec = _spec(model, prompted, job, needed=not traces)
    if evaluate and spec is None:
        raise ValueError(f"--evaluate needs a task, got {evaluate} without; add --task, or leave it out.")
    interaction = None if spec is None else spec.build()
    chat = load_chat(config, args, spec)
    dropped: Counter[str] = Counter()
    with Progress() as progress:
        if traces:
            found = _read(traces, chat, interaction, dropped)
        else:
            assert interaction is not None
            player = _player(interaction, script, named_oracle(oracle, oracle_option), quality)
            starts = _starts(interaction, job, dataset, split, episodes)
            walks = _walks(interaction, player, starts, progress.task("scripted play", len(starts)), dropped)
            found = list(demonstrations(interaction, chat, player, walks))
        kept, others = select(found, None if min_success < 0 else min_success, *limits(config, args, spec))
        dropped += others
        _say(kept, dropped, min_success)
        learned, unseen = hold_out(kept, held_out, args.seed)
        if held_out and not unseen:
            typer.echo("No held-out loss: all episodes are of one task.")
        trainer = trainer_of(config, args, chat, learned, unseen, dropped)
        for shown in (ProgressCallback, PrinterCallback):
            trainer.remove_callback(shown)
        trainer.add_callback(ShowProgress(progress, "warm-up"))
        results: dict[str, EvalResults] = {}
        if evaluate and spec is not None:
            results["before"] = _evaluate(model, spec, evaluate, progress, output / "evaluation_before.json")
        trainer.train(resume_from_checkpoint=resumption(args.resume_from_checkpoint))
        if unseen:
            trainer.evaluate()
        save(trainer, spec)
        if evaluate and spec is not None:
            results["after"] = _evaluate(str(output), spec, evaluate, progress, output / "evaluation_after.json")
    if results:
        print_rows(["", *results], results_rows(results))
    typer.echo(f"Wrote {output}. Try: hf-credit evaluate {output}{'' if spec else ' --task ...'}")


def _job(recipe: str | None, model: str) -> Any:
    if recipe is None:
        return None
    from hf_credit.recipes import find
    from hf_credit.trainers.recipes import read_job

    return read_job(["--config", str(find(recipe)), "--model_name_or_path", model])


def _spec(model: str, prompted: Prompted, job: Any, needed: bool) -> TaskSpec | None:
    """The task: of the recipe, of the options, or of the model's folder; `None` if traces need none."""
    from hf_credit.tasks import TaskSpec

    if job is not None:
        return job.spec()  # type: ignore[no-any-return]
    if not needed and prompted.task is None and TaskSpec.load(model) is None:
        return None
    return prompted.spec(model).complete()


def _player(interaction: Interaction[Any], script: str | None, oracle: Any, quality: float) -> Script:
    from hf_credit.registry import find
    from hf_credit.rollouts.capabilities import Oracled, Scripted
    from hf_credit.rollouts.scripts import OraclePlayer

    if script is not None:
        named: Any = find("script", {}, script)
        return named(quality) if isinstance(named, type) else named  # type: ignore[no-any-return]
    if oracle is not None:
        environment: Any = interaction
        return OraclePlayer(environment.environment, Oracled(interaction).check_oracle(oracle), quality)  # type: ignore[arg-type]
    player = Scripted(interaction).scripted_player(quality)
    if player is None:
        raise ValueError(
            f"a warm-up needs someone to learn from, got {interaction.name!r} without an oracle or a scripted player; "
            "add --script or --traces."
        )
    return player


def _starts(
    interaction: Interaction[Any], job: Any, dataset: str | None, split: str, episodes: int | None
) -> list[RolloutRequest[Any]]:
    """The tasks to play: rows of a dataset, or the first of the task's own training tasks."""
    from hf_credit.environments.tasks import task_seed
    from hf_credit.rollouts import RolloutRequest
    from hf_credit.rollouts.capabilities import TaskSource
    from hf_credit.tasks.rows import evaluation_starts
    from hf_credit.trainers.training import load_rows

    if dataset is not None:
        return evaluation_starts(interaction, episodes, 0, dataset, split)
    if job is not None and (job.game.dataset_name or job.game.problem_sets):
        rows = itertools.islice(load_rows(job).train, episodes)
        return [RolloutRequest(task=row, seed=row.get("seed", place)) for place, row in enumerate(rows)]
    rows = TaskSource(interaction).tasks("train", episodes or _EPISODES)
    return [RolloutRequest(task=row, seed=task_seed("train", place)) for place, row in enumerate(rows)]


def _walks(
    interaction: Interaction[Any],
    player: Script,
    starts: Sequence[RolloutRequest[Any]],
    task: Task,
    dropped: Counter[str],
) -> Iterator[tuple[RolloutRequest[Any], Walk]]:
    """Plays; an error ends only its episode, and is shown."""
    from hf_credit.policies.scripted import walk
    from hf_credit.rollouts.failures import FailureLog

    failures = FailureLog()
    for start in starts:
        try:
            yield start, walk(interaction, player, start)
        except Exception as error:
            failures.add(error, "a scripted episode")
            dropped[f"raised {type(error).__name__}"] += 1
        task.advance()


def _read(
    traces: Sequence[Path], chat: Chat, interaction: Interaction[Any] | None, dropped: Counter[str]
) -> list[Demonstration]:
    from hf_credit.evaluation.recorded_play import recorded_demonstrations

    found: list[Demonstration] = []
    for path in traces:
        read, failures = recorded_demonstrations(path, chat, interaction)
        found += read
        say_skipped(failures)
        if failures:
            dropped["on lines that cannot be used"] += len(failures)
    return found


def _say(kept: Sequence[Demonstration], dropped: Counter[str], min_success: float) -> None:
    """Prints what is learned and what is left out, with the reasons.

    Raises:
        ValueError: nothing is left.
    """
    from hf_credit.policies.demonstrations import IGNORED, supervised_rows

    reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
    if not kept:
        raise ValueError(
            f"a warm-up must have an episode to learn from, got none: {reasons or 'no episodes'}; lower "
            "--min-success, raise the limit, or give other episodes."
        )
    if reasons:
        typer.echo(f"Left out {dropped.total()} of {dropped.total() + len(kept)} episodes: {reasons}.")
    rows = [row for one in kept for row in supervised_rows(one)]
    tokens = sum(len(row["input_ids"]) for row in rows)
    replies = sum(label != IGNORED for row in rows for label in row["labels"])
    tasks = len({one.task for one in kept})
    count = f"{len(kept)} episodes of {tasks} tasks, {len(rows)} rows"
    typer.echo(f"{count} with {tokens:,} tokens, {replies:,} of them of replies.")


def _evaluate(model: str, spec: TaskSpec, episodes: int, progress: Progress, path: Path) -> EvalResults:
    from hf_credit.evaluation.play import evaluate_model

    turns: list[Task] = []
    results = evaluate_model(
        model,
        spec,
        episodes,
        on_begin=lambda most: turns.append(progress.task(path.stem, most)),
        on_replies=lambda replies: turns[0].advance(replies),
    )
    turns[0].finish()
    write(path, results.to_json())
    return results
