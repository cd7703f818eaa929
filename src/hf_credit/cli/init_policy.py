"""`hf-credit init-policy`: builds a micro policy, small enough for a CPU, and warms it up on scripted play."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.options import EnvironmentOptions, TaskName, parse_options
from hf_credit.cli.progress import Progress, be_quiet

if TYPE_CHECKING:
    from hf_credit.policies.micro import MicroConfig
    from hf_credit.tasks import TaskSpec


def init_policy(
    task: TaskName,
    output: Annotated[Path, typer.Argument(help="Output folder; `from_pretrained` loads it.")],
    option: EnvironmentOptions = None,
    history: Annotated[
        str,
        typer.Option(
            help="append: prompts contain all earlier turns; rendered: what the chat template keeps of them; current: "
            "only the current observation."
        ),
    ] = "current",
    instructions: Annotated[bool, typer.Option(help="Start prompts with the instructions.")] = False,
    hidden_size: Annotated[int, typer.Option(help="Hidden size of the model.")] = 64,
    layers: Annotated[int, typer.Option(help="Number of layers.")] = 2,
    heads: Annotated[int, typer.Option(help="Number of attention heads.")] = 4,
    quality: Annotated[
        float, typer.Option(help="Probability that the scripted player takes an action that the oracle accepts.")
    ] = 0.7,
    episodes: Annotated[int, typer.Option(help="Number of scripted episodes to imitate.")] = 3000,
    epochs: Annotated[int, typer.Option(help="Passes over these episodes.")] = 1,
    batch_rows: Annotated[int, typer.Option(help="Rows per optimizer step of the warm-up.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate of the warm-up's cosine schedule.")] = 4e-3,
    seed: Annotated[int, typer.Option(help="Seed of the weights, the scripted player and the order of episodes.")] = 0,
) -> None:
    """Builds a micro policy for an environment or a collaboration and warms it up on scripted play of this --quality.

    \b
    Examples:
      hf-credit init-policy tic_tac_toe runs/tic_tac_toe_base
      hf-credit init-policy sudoku runs/sudoku_base --option size=4 --option blanks=8 --quality 0.8
      hf-credit init-policy relay runs/relay_base
    """
    be_quiet()  # before the imports that print warnings
    from hf_credit.policies.micro import MICRO_SAMPLING, MicroConfig
    from hf_credit.tasks import TaskSpec
    from hf_credit.tasks.commands import evaluation_command

    config = MicroConfig(
        hidden_size=hidden_size,
        layers=layers,
        heads=heads,
        quality=quality,
        episodes=episodes,
        epochs=epochs,
        batch_rows=batch_rows,
        learning_rate=learning_rate,
        seed=seed,
    )
    shown = {"history": history, "instructions": instructions}
    spec = TaskSpec.of_name(task, parse_options(option), sampling=MICRO_SAMPLING, **shown)
    with Progress() as progress:
        create(spec, config, output, progress)
    typer.echo(f"Wrote {output}. Try: {evaluation_command(output)}")


def create(
    spec: TaskSpec, config: MicroConfig, output: Path, progress: Progress, rows: Iterable[Any] | None = None
) -> None:
    """Builds a policy, warms it up and saves it with its task in the folder `output`.

    Args:
        rows: the tasks of the scripted play; by default training tasks.

    Raises:
        ValueError: a setting is invalid, or the task has neither an oracle nor a scripted player.
    """
    from hf_credit.cli.training_progress import ShowProgress
    from hf_credit.policies.scripted import player_of
    from hf_credit.rollouts.capabilities import TaskSource
    from hf_credit.tasks.rows import starts_of
    from hf_credit.trainers.micro import init_scripted_policy

    interaction = spec.build()
    player = player_of(interaction, config.quality)
    rows = TaskSource(interaction).tasks("train", config.episodes) if rows is None else rows
    starts = progress.over(starts_of(rows, "train"), "scripted play")
    shown = [ShowProgress(progress, "warm-up")]
    init_scripted_policy(interaction, player, starts, output, config, shown, spec.sampling)
