"""`hf-credit warm-up`: supervised training of any model on a task, before it is trained by its own play."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.boundary import types_of
from hf_credit.cli.credit import say_skipped
from hf_credit.cli.options import (
    DatasetOption,
    ModelArgument,
    OracleOptions,
    Prompted,
    SplitOption,
    named_oracle,
    with_options,
)
from hf_credit.cli.progress import Progress, be_quiet
from hf_credit.recipes import find
from hf_credit.trust import Consent

if TYPE_CHECKING:
    from hf_credit.policies.scripted import Demonstration
    from hf_credit.rollouts import Chat, Interaction, RolloutRequest

_EPISODES = 512  # of tasks that the task makes itself


@dataclass(frozen=True, kw_only=True)
class Taught(Prompted):
    """Options of `hf-credit warm-up` for who is learned from, and on what."""

    recipe: Annotated[
        str | None, typer.Option(help="Take the task, its rows and all settings of prompts from this recipe.")
    ] = None
    traces: Annotated[
        list[Path] | None,
        typer.Option(help="Learn from these: episodes.jsonl of a run, or chat logs as for `credit`; repeatable."),
    ] = None
    replay_actions: Annotated[
        bool,
        typer.Option(
            "--replay-actions",
            help="Also play the actions of --traces again where they act outside of this process, as the tools of a "
            "program do; read them before.",
        ),
    ] = False
    script: Annotated[
        str | None,
        typer.Option(help="Learn from module:function(state, request, random), or module:Class made with --quality."),
    ] = None
    oracle: Annotated[
        str | None,
        typer.Option(help="Learn from the play of this oracle; by default the recipe's, or the task's own player."),
    ] = None
    oracle_option: OracleOptions = None
    quality: Annotated[float, typer.Option(help="Probability that the player plays well.")] = 1.0
    episodes: Annotated[
        int | None, typer.Option(help=f"Episodes to play; by default {_EPISODES}, or the rows of a dataset.", min=1)
    ] = None
    dataset: DatasetOption = None
    split: SplitOption = "train"
    min_success: Annotated[
        float, typer.Option(help="Learn from episodes with at least this success (outcome without one); -1 for all.")
    ] = 1.0
    held_out: Annotated[
        float, typer.Option(help="Share of tasks that are not learned, for a held-out loss.", min=0, max=0.9)
    ] = 0.1

    def __post_init__(self) -> None:
        if self.traces and (self.script or self.oracle or self.dataset or self.episodes):
            raise ValueError("--traces are learned as they are, got a player or tasks, too; leave these out.")
        if self.script and self.oracle:
            raise ValueError(
                f"one player plays, got --script {self.script!r} and --oracle {self.oracle!r}; leave one of them out."
            )
        of_task = [*types_of(Prompted), "dataset"]
        given = [one for one in of_task if getattr(self, one) not in (None, [], False)]
        if self.recipe and (others := [one for one in given if one != "trust_remote_code"]):
            flags = ", ".join(f"--{one.replace('_', '-')}" for one in others)
            raise ValueError(f"a recipe names its task and rows, got {self.recipe!r} and {flags}; leave these out.")

    def demonstrations(
        self, interaction: Interaction[Any] | None, job: Any, chat: Chat, dropped: Counter[str], progress: Progress
    ) -> Iterable[Demonstration]:
        """Returns what is learned, recorded or played; counts in `dropped` what cannot be used."""
        from hf_credit.evaluation.recorded_play import recorded_demonstrations
        from hf_credit.oracles import resolve
        from hf_credit.policies.scripted import demonstrations, player_of, walks

        if interaction is None or self.traces:
            consent = Consent(actions=self.replay_actions)
            read = [recorded_demonstrations(path, chat, interaction, consent) for path in self.traces or ()]
            say_skipped(failures := [failure for _, some in read for failure in some])
            dropped.update({"on lines that cannot be used": len(failures)} if failures else {})
            return (one for some, _ in read for one in some)
        of_recipe = None if job is None else job.task.described_oracle()
        oracle = named_oracle(self.oracle, self.oracle_option) or resolve(of_recipe)
        player = player_of(interaction, self.quality, self.script, oracle)
        starts = progress.over(self._starts(interaction, job), "scripted play")
        return demonstrations(interaction, chat, player, walks(interaction, player, starts, dropped))

    def _starts(self, interaction: Interaction[Any], job: Any) -> list[RolloutRequest[Any]]:
        """The tasks to play: rows of a dataset, or the first of the task's own training tasks."""
        from hf_credit.rollouts import RolloutRequest
        from hf_credit.rollouts.capabilities import TaskSource
        from hf_credit.tasks.rows import evaluation_starts, starts_of
        from hf_credit.trainers.training import load_rows

        if self.dataset is not None:
            return evaluation_starts(interaction, self.episodes, 0, self.dataset, self.split)
        if job is not None and (job.task.dataset_name or job.task.problem_sets):
            rows = itertools.islice(load_rows(job).train, self.episodes)
            return [RolloutRequest(task=row, seed=row.get("seed", place)) for place, row in enumerate(rows)]
        return starts_of(TaskSource(interaction).tasks("train", self.episodes or _EPISODES), "train")


@with_options("taught", Taught)
def warm_up(
    context: typer.Context,
    model: ModelArgument,
    output: Annotated[Path, typer.Option(help="Output folder, from which `train` and `evaluate` go on.")],
    *,
    taught: Taught,
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
    be_quiet()
    from hf_credit.tasks import TaskSpec

    job = spec = None
    if taught.recipe:
        recipe = str(find(taught.recipe))
        from hf_credit.trainers.recipes import read_job

        job = read_job(["--config", recipe, "--model_name_or_path", model])
        spec = job.spec()
    elif not (taught.traces and taught.task is None and TaskSpec.load(model) is None):
        spec = taught.spec(model).complete()
    interaction = None if spec is None else spec.build()
    from transformers import PrinterCallback, ProgressCallback

    from hf_credit.cli.training_progress import ShowProgress
    from hf_credit.policies.scripted import hold_out, in_words, select
    from hf_credit.tasks.commands import evaluation_command
    from hf_credit.trainers.training import evaluation_of
    from hf_credit.trainers.warm_up import read_settings, save, trainer_of

    args, config, chat, limits = read_settings(model, context.args, output, spec, taught.trust_remote_code)
    dropped: Counter[str] = Counter()
    with Progress() as progress:
        found = taught.demonstrations(interaction, job, chat, dropped, progress)
        kept, others = select(found, -math.inf if taught.min_success < 0 else taught.min_success, **limits)
        typer.echo(in_words(kept, dropped + others))
        learned, unseen = hold_out(kept, taught.held_out, args.seed)
        if taught.held_out and not unseen:
            typer.echo("No held-out loss: all episodes are of one task.")
        trainer = trainer_of(config, args, chat, learned, unseen, dropped + others)
        for shown in (ProgressCallback, PrinterCallback):
            trainer.remove_callback(shown)
        trainer.add_callback(ShowProgress(progress, "warm-up"))
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        if unseen:
            trainer.evaluate()
        save(trainer, spec and replace(spec, chat_template_kwargs=chat.template_kwargs))
    if spec is None:
        typer.echo(
            f"Wrote {output}. It has no task: name it as model_name_or_path of a recipe, or evaluate it with --task."
        )
    else:
        again = (
            evaluation_command(output, interaction, taught.dataset, taught.split)
            if job is None
            else evaluation_of(job, output)
        )
        typer.echo(f"Wrote {output}. Try: {again}")
