"""`hf-credit init-policy`: builds a micro policy, small enough for a CPU, and warms it up on scripted play."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.options import EnvironmentOptions, TaskName, parse_options, with_options
from hf_credit.cli.progress import Progress, be_quiet
from hf_credit.options import Option, first_sentence, part_of, with_fields_of
from hf_credit.playing import Prompts
from hf_credit.policies.micro_settings import MICRO_PROMPTS, MICRO_SAMPLING, MicroConfig

if TYPE_CHECKING:
    from hf_credit.tasks import TaskSpec


def _flag(one: Option) -> tuple[Any, Any]:
    default = getattr(MICRO_PROMPTS, one.name, one.default)
    return Annotated[one.field_type, typer.Option(help=f"{first_sentence(one.text)}.")], default


@dataclass(frozen=True, kw_only=True)
@with_fields_of(Prompts, MicroConfig, declare=_flag)
class Micro:
    """Options of the command for the policy: its prompts, its size and its warm-up."""


@with_options("micro", Micro)
def init_policy(
    task: TaskName,
    output: Annotated[Path, typer.Argument(file_okay=False, help="Output folder; `from_pretrained` loads it.")],
    option: EnvironmentOptions = None,
    *,
    micro: Micro,
) -> None:
    """Builds a micro policy for an environment or a collaboration and warms it up on scripted play of this --quality.

    \b
    Examples:
      hf-credit init-policy tic_tac_toe runs/tic_tac_toe_base
      hf-credit init-policy sudoku runs/sudoku_base --option size=4 --option blanks=8 --quality 0.8
      hf-credit init-policy relay runs/relay_base
    """
    be_quiet()  # before the imports that print warnings
    from hf_credit.tasks import TaskSpec
    from hf_credit.tasks.commands import evaluation_command

    config = part_of(MicroConfig, micro)
    spec = TaskSpec.of_name(task, parse_options(option), sampling=MICRO_SAMPLING, **vars(part_of(Prompts, micro)))
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
