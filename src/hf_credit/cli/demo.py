"""`hf-credit demo`: the method against its baseline, from nothing, on a processor, within minutes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.progress import Progress

if TYPE_CHECKING:
    from hf_credit.evaluation.report import Report

VPR, OUTCOME, BASE = "VPR", "outcome reward", "base"


@dataclass(frozen=True, kw_only=True)
class DemoRecipe:
    """All that the demo can be told; the same for both trainings but for the reward.

    Attributes:
        size, blanks: of the Sudoku.
        hidden_size, layers: of the policy.
        scripted_episodes, quality: what the base policy imitates, and how often that is oracle-valid.
        updates: of each training.
        trajectories: episodes of an update.
        learning_rate, lr_scheduler_type, warmup_steps: of both trainings.
        max_new_tokens: the longest reply; an action is seven tokens.
        held_out: tasks that the policies are compared on.
        seed: of the weights, the trainings and the evaluation.
    """

    size: int = 4
    blanks: int = 8
    hidden_size: int = 64
    layers: int = 2
    scripted_episodes: int = 3500
    quality: float = 0.9
    updates: int = 70
    trajectories: int = 128
    learning_rate: float = 1e-3
    lr_scheduler_type: str = "cosine"
    warmup_steps: int = 5
    max_new_tokens: int = 12
    held_out: int = 512
    seed: int = 0

    def setup(self) -> dict[str, Any]:
        """The game as training, evaluation and the scripted player meet it."""
        return {
            "environment": "sudoku",
            "environment_options": {"size": self.size, "blanks": self.blanks},
            "history": "current",
            "instructions": False,
        }

    def sampling(self) -> dict[str, Any]:
        """How replies are drawn, in training and in evaluation."""
        return {"temperature": 1.0, "top_p": 1.0, "top_k": 0}

    def training(self, method: str, base: Path, output: Path) -> dict[str, Any]:
        """The recipe of one training, as for `hf-credit train`."""
        return {
            "method": method,
            **self.setup(),
            **self.sampling(),
            "model_name_or_path": str(base),
            "output_dir": str(output),
            "max_steps": self.updates,
            "instances_per_update": self.trajectories,
            "per_device_train_batch_size": self.trajectories,
            "max_completion_length": self.max_new_tokens,
            "learning_rate": self.learning_rate,
            "lr_scheduler_type": self.lr_scheduler_type,
            "warmup_steps": self.warmup_steps,
            "seed": self.seed,
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "logging_steps": 1,
            "save_strategy": "no",
            "disable_tqdm": True,
        }


def demo(
    output: Annotated[Path, typer.Option(help="The folder to write; earlier results in it are replaced.")] = Path(
        "runs/demo"
    ),
    updates: Annotated[int, typer.Option(help="Updates of each training.", min=1)] = DemoRecipe.updates,
    episodes: Annotated[int, typer.Option(help="Held-out tasks to compare on.", min=2)] = DemoRecipe.held_out,
    seed: Annotated[int, typer.Option(help="Of the weights, the trainings and the evaluation.", min=0)] = 0,
) -> None:
    """Trains a micro policy on 4x4 Sudoku with VPR and with outcome reward only, and compares both with the base.

    Both trainings start from the same weights and play the same number of episodes. Takes about four minutes on two
    cores and needs the extras statistics and viz.

    \b
    Examples:
      hf-credit demo
      hf-credit demo --output runs/longer --updates 300
    """
    run_demo(replace(DemoRecipe(), updates=updates, held_out=episodes, seed=seed), output)


def run_demo(recipe: DemoRecipe, output: Path) -> Report:
    """Runs the demo, prints what came out and writes it to `output`.

    Raises:
        ValueError: a setting is not possible, or a training failed.
        ImportError: scipy or matplotlib is missing.
    """
    from hf_credit.cli.quiet import be_quiet
    from hf_credit.evaluation.plots import require_matplotlib
    from hf_credit.evaluation.report import write_report
    from hf_credit.evaluation.statistics import mean_interval

    require_matplotlib()
    mean_interval([0.0, 1.0], resamples=2)
    be_quiet()
    begun = time.monotonic()
    with Progress() as progress, _few_threads():
        _make_base(recipe, output, progress)
        _train(recipe, output, progress)
        results = _evaluate(recipe, output, progress)
    report = _report(recipe, output, results)
    path = write_report(report, output)
    _print(report)
    typer.echo(f"\nWrote {path} after {time.monotonic() - begun:.0f} seconds.")
    return report


@contextlib.contextmanager
def _few_threads() -> Iterator[None]:
    """As many threads here as each training has: on a core that another process wants, more of them only spin."""
    import torch

    from hf_credit.cli.side_by_side import threads_each

    before = torch.get_num_threads()
    torch.set_num_threads(threads_each(2))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _make_base(recipe: DemoRecipe, output: Path, progress: Progress) -> None:
    from hf_credit.cli.init_policy import create
    from hf_credit.policies.micro import MicroConfig
    from hf_credit.tasks import Sampling, TaskSpec

    sampling = Sampling(max_new_tokens=recipe.max_new_tokens, **recipe.sampling())
    config = MicroConfig(
        hidden_size=recipe.hidden_size,
        layers=recipe.layers,
        episodes=recipe.scripted_episodes,
        quality=recipe.quality,
        seed=recipe.seed,
    )
    create(TaskSpec(**recipe.setup(), sampling=sampling), config, output / "base", progress)


def _train(recipe: DemoRecipe, output: Path, progress: Progress) -> None:
    from hf_credit.cli.side_by_side import Training, train_side_by_side
    from hf_credit.evaluation.runs import write_config

    trainings = []
    for name, method in ((VPR, "verifiable_process"), (OUTCOME, "outcome_reward")):
        folder = _folders(output)[name]
        path = output / f"{folder.name}.yaml"
        write_config(path, recipe.training(method, output / "base", folder))
        trainings.append(Training(name=name, recipe=path, folder=folder, updates=recipe.updates))
    train_side_by_side(trainings, progress)


def _evaluate(recipe: DemoRecipe, output: Path, progress: Progress) -> dict[str, Any]:
    from hf_credit.evaluation.play import evaluate_model
    from hf_credit.tasks import TaskSpec

    results = {}
    for name, folder in _folders(output).items():
        spec = TaskSpec.load(folder)
        assert spec is not None  # written with the policy
        task = progress.task(f"evaluate {name}", recipe.held_out * recipe.blanks)
        results[name] = evaluate_model(
            str(folder), spec, recipe.held_out, seed=recipe.seed, device="cpu", on_replies=task.advance
        )
        task.finish()
        (folder / "evaluation.json").write_text(results[name].to_json(), encoding="utf-8")
    return results


def _report(recipe: DemoRecipe, output: Path, results: dict[str, Any]) -> Report:
    from hf_credit.evaluation.report import Report, compare
    from hf_credit.evaluation.runs import read_run

    runs = [read_run(_folders(output)[name], name) for name in (VPR, OUTCOME)]
    used, other = (run.total("tokens/generated") for run in runs)
    return Report(
        title="Verifiable process rewards against outcome reward",
        introduction=(
            f"A micro policy for {recipe.size}x{recipe.size} Sudoku with {recipe.blanks} blanks was warmed up on "
            f"{recipe.scripted_episodes} scripted episodes whose actions are oracle-valid with probability "
            f"{recipe.quality:g} (*base*). From there it was trained twice with the same settings and as many "
            f"episodes: with the oracle's verdict on each action (*{VPR}*), and with the outcome of the episode only "
            f"(*{OUTCOME}*)."
        ),
        runs=runs,
        results=results,
        comparisons=[*compare(results, VPR, OUTCOME), *compare(results, VPR, BASE)],
        notes=[
            f"Both trainings played {runs[0].episodes:,.0f} episodes; {VPR} generated {used:,.0f} tokens and "
            f"{OUTCOME} {other:,.0f} ({used / other:.2f} times as many for {VPR}), because an illegal action ends an "
            "episode early.",
            "The intervals say how far the numbers depend on which tasks were drawn. Each training was run once, so "
            "they say nothing about other seeds of the training.",
        ],
    )


def _folders(output: Path) -> dict[str, Path]:
    return {BASE: output / "base", OUTCOME: output / "outcome", VPR: output / "vpr"}


def _print(report: Report) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from hf_credit.evaluation.report import budget, shown

    console = Console()
    table = Table("policy", "success rate", "completion rate", "episodes", "tokens", box=box.SIMPLE_HEAD)
    used = {run.name: budget(run) for run in report.runs}
    for name, results in report.results.items():
        summary = results.summary()
        spent = [f"{used[name][what] or 0:,.0f}" for what in ("episodes", "generated_tokens")] if name in used else []
        table.add_row(name, *(shown(metric, summary[metric]) for metric in ("success", "completion")), *spent)
    console.print(table)
    what = "Means over held-out tasks [95% intervals]; episodes played and tokens generated in training."
    console.print(f"{what}\n", markup=False)
    for comparison in report.comparisons:
        console.print(f"- {comparison.verdict}", highlight=False, markup=False, soft_wrap=True)
    for note in report.notes:
        console.print(f"\n{note}", highlight=False, markup=False, soft_wrap=True)
