"""`hf-credit demo`: compares VPR with outcome reward on a CPU, within minutes."""

from __future__ import annotations

import contextlib
import itertools
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.init_policy import create
from hf_credit.cli.progress import Progress, be_quiet, print_rows
from hf_credit.cli.side_by_side import Training, threads_each, train_side_by_side
from hf_credit.files import write

if TYPE_CHECKING:
    from hf_credit.evaluation.report import Report

VPR, OUTCOME, BASE = "VPR", "outcome reward", "base"
_METRICS = ("success", "completion")
_PAIRS = ((VPR, OUTCOME), (VPR, BASE), (OUTCOME, BASE))


@dataclass(frozen=True, kw_only=True)
class DemoRecipe:
    """The settings of the demo: those of the recipe `sudoku_micro`, with these in place of its own. Both trainings
    share them, except the reward and the learning rate.

    Attributes:
        size, blanks: options of the Sudoku environment.
        base: the size and the warm-up of the base policy, as for `MicroConfig`.
        updates: the number of updates of each training.
        trajectories: episodes per update.
        gradient_steps: optimizer steps per update, each on an equal part of its episodes.
        learning_rate, outcome_learning_rate: of VPR and of outcome reward, each chosen by short runs on training
            tasks, at least as many for outcome reward.
        held_out: the number of held-out tasks for the comparison.
        seed: of the weights, the trainings and the evaluation.
    """

    size: int = 4
    blanks: int = 8
    base: Mapping[str, Any] = field(
        default_factory=lambda: {"layers": 1, "episodes": 2000, "quality": 0.82, "epochs": 2, "learning_rate": 8e-3}
    )
    updates: int = 20
    trajectories: int = 128
    gradient_steps: int = 8
    learning_rate: float = 2e-3
    outcome_learning_rate: float = 2e-3
    held_out: int = 512
    seed: int = 0

    @property
    def steps(self) -> int:
        """The number of optimizer steps of each training."""
        return self.updates * self.gradient_steps

    def recipe(self) -> dict[str, Any]:
        """Returns the recipe of training, evaluation and the scripted player, with this task."""
        from hf_credit.recipes import find
        from hf_credit.safe_io import read_yaml

        known: dict[str, Any] = read_yaml(find("sudoku_micro"))
        task = {**known["task_options"], "size": self.size, "blanks": self.blanks}
        return {**known, "task_options": task}

    def setup(self) -> dict[str, Any]:
        """Returns the fields of the recipe that are those of a `TaskSpec`."""
        recipe = self.recipe()
        return {name: recipe[name] for name in ("task", "task_options", "history", "instructions")}

    def training(self, method: str, base: Path, output: Path) -> dict[str, Any]:
        """Returns the recipe of one training for `hf-credit train`."""
        episodes = self.trajectories // self.gradient_steps
        return {
            **self.recipe(),
            "method": method,
            "model_name_or_path": str(base),
            "output_dir": str(output),
            "max_steps": self.steps,
            "instances_per_update": episodes,
            "per_device_train_batch_size": episodes,
            "steps_per_generation": self.gradient_steps,
            "warmup_steps": self.gradient_steps,
            "learning_rate": self.outcome_learning_rate if method == "outcome_reward" else self.learning_rate,
            "seed": self.seed,
            "logging_steps": 1,
            "disable_tqdm": True,
        }


def demo(
    output: Annotated[Path, typer.Option(help="Output folder; earlier results in it are replaced.")] = Path(
        "runs/demo"
    ),
    updates: Annotated[int, typer.Option(help="Number of updates of each training.", min=1)] = DemoRecipe.updates,
    episodes: Annotated[
        int, typer.Option(help="Number of held-out tasks to compare on.", min=2)
    ] = DemoRecipe.held_out,
    seed: Annotated[int, typer.Option(help="Seed of the weights, the trainings and the evaluation.", min=0)] = 0,
    seeds: Annotated[
        int, typer.Option(help="Number of repetitions with consecutive seeds, which are compared.", min=1)
    ] = 1,
) -> None:
    """Trains a micro policy on 4x4 Sudoku with VPR and with outcome reward only, and compares both with the base.

    Both trainings start from the same weights and play the same number of episodes. Takes minutes per seed on two
    cores and needs the extras statistics and viz. With fewer --updates the same training stops earlier.

    \b
    Examples:
      hf-credit demo
      hf-credit demo --output runs/longer --updates 60
      hf-credit demo --output runs/five --seeds 5
    """
    run_demo(replace(DemoRecipe(), updates=updates, held_out=episodes, seed=seed), output, seeds)


def run_demo(recipe: DemoRecipe, output: Path, seeds: int = 1) -> list[Report]:
    """Runs the demo, prints the results and writes them to `output`; returns the report of each seed.

    Args:
        recipe: the settings; its seed is the first.
        output: the folder. Each of several seeds has a subfolder.
        seeds: the number of repetitions, each with a new base policy.

    Raises:
        ValueError: a setting is invalid, or a training failed.
        ImportError: scipy or matplotlib is missing.
    """
    from hf_credit.evaluation.plots import require_matplotlib
    from hf_credit.evaluation.report import write_report
    from hf_credit.evaluation.statistics import mean_interval

    require_matplotlib()
    mean_interval([0.0, 1.0])
    be_quiet()
    begun = time.monotonic()
    reports = []
    for number in range(seeds):
        one = replace(recipe, seed=recipe.seed + number)
        folder = output if seeds == 1 else output / f"seed_{one.seed}"
        with Progress() as progress, few_threads():
            make_base(one, folder, progress)
            train_both(one, folder, progress)
            results = _evaluate(one, folder, progress)
        reports.append(_report(one, folder, results))
        path = write_report(reports[-1], folder)
        _print(reports[-1])
    if seeds > 1:
        path = _write_over_seeds(reports, output)
        typer.echo(f"\n{path.read_text(encoding='utf-8')}")
    typer.echo(f"\nWrote {path} after {time.monotonic() - begun:.0f} seconds.")
    typer.echo(f"Next: {shlex.join(['hf-credit', 'report', str(folders(folder)[VPR])])}")
    return reports


@contextlib.contextmanager
def few_threads() -> Iterator[None]:
    """Limits torch to the number of threads that each training uses: more would compete for the same cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads_each(2))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_base(recipe: DemoRecipe, output: Path, progress: Progress) -> None:
    """Builds the policy that both trainings start from, in the folder `folders(output)[BASE]`."""
    from hf_credit.policies.micro import MicroConfig
    from hf_credit.tasks import Sampling, TaskSpec

    sampling = Sampling(max_new_tokens=recipe.recipe()["max_completion_length"])
    config = MicroConfig(**recipe.base, seed=recipe.seed)
    create(TaskSpec(**recipe.setup(), sampling=sampling), config, output / "base", progress)


def train_both(recipe: DemoRecipe, output: Path, progress: Progress) -> None:
    """Trains with both rewards in parallel, each in its folder of `folders(output)`.

    Raises:
        ValueError: a training failed.
    """
    from hf_credit.evaluation.runs import write_config

    trainings = []
    for name, method in ((VPR, "verifiable_process"), (OUTCOME, "outcome_reward")):
        folder = folders(output)[name]
        path = output / f"{folder.name}.yaml"
        write_config(path, recipe.training(method, output / "base", folder))
        trainings.append(Training(name=name, recipe=path, folder=folder, updates=recipe.steps))
    train_side_by_side(trainings, progress)


def _evaluate(recipe: DemoRecipe, output: Path, progress: Progress) -> dict[str, Any]:
    from hf_credit.evaluation.play import evaluate_model
    from hf_credit.tasks import TaskSpec

    results = {}
    for name, folder in folders(output).items():
        spec = TaskSpec.load(folder)
        assert spec is not None  # written with the policy
        with progress.playing(f"evaluate {name}"):
            results[name] = evaluate_model(str(folder), spec, recipe.held_out, seed=recipe.seed, device="cpu")
        write(folder / "evaluation.json", results[name].to_json())
    return results


def _report(recipe: DemoRecipe, output: Path, results: dict[str, Any]) -> Report:
    from hf_credit.evaluation.report import Report, budget, compare
    from hf_credit.evaluation.runs import read_run

    runs = [read_run(folders(output)[name], name) for name in (VPR, OUTCOME)]
    spent = [budget(run) for run in runs]
    used, other = (one["generated_tokens"] or math.nan for one in spent)
    notation = recipe.setup()["task_options"]["notation"]
    return Report(
        title="Verifiable process rewards against outcome reward",
        introduction=(
            f"A micro policy for {recipe.size}x{recipe.size} Sudoku with {recipe.blanks} blanks, in the notation "
            f"`{notation}`, was warmed up on {recipe.base['episodes']} scripted episodes whose actions are "
            f"oracle-valid with probability {recipe.base['quality']:g} (*base*). It was then trained twice, with the "
            f"oracle's verdict on each action (*{VPR}*) and with only the outcome of the episode (*{OUTCOME}*). Both "
            "trainings have the same number of episodes and the same settings, except the learning rate, which was "
            "chosen for each method by short runs on training tasks."
        ),
        runs=runs,
        results=results,
        comparisons=[one for pair in _PAIRS for one in compare(results, *pair)],
        notes=[
            f"Both trainings played {spent[0]['episodes']:,.0f} episodes; {VPR} generated {used:,.0f} tokens and "
            f"{OUTCOME} {other:,.0f} ({used / other:.2f} times as many for {VPR}); the numbers differ because an "
            "illegal action ends an episode early.",
            f"The intervals cover only the draw of the {recipe.held_out} held-out tasks. Each method was trained "
            f"once, with seed {recipe.seed}, so they do not cover other seeds; `hf-credit demo --seeds 5` trains and "
            "compares five times.",
        ],
    )


def _write_over_seeds(reports: Sequence[Report], output: Path) -> Path:
    """Writes the report over all seeds: means over seeds, and paired differences per seed."""
    from hf_credit.evaluation.report import REPORT_FILE, Comparison, shown, table
    from hf_credit.evaluation.statistics import SHARE, mean_interval, paired_difference
    from hf_credit.rollouts.metric_names import label

    def means(policy: str, metric: str) -> list[float]:
        return [fmean(report.results[policy].values(metric).values()) for report in reports]

    rows = [
        [policy, *(shown(metric, mean_interval(means(policy, metric), within=SHARE)) for metric in _METRICS)]
        for policy in (BASE, OUTCOME, VPR)
    ]
    verdicts = []
    for (of, minus), metric in itertools.product(_PAIRS, _METRICS):
        interval = paired_difference(means(of, metric), means(minus, metric), within=SHARE)
        verdicts.append(Comparison(of=of, minus=minus, metric=metric, interval=interval, units="seeds").conclusion)
    note = (
        f"Means over {len(reports)} seeds [95% intervals over the seeds]. Each seed has its own base "
        "policy, from which each method was trained once. The differences are paired by seed, on the same held-out "
        "tasks. The intervals cover the weights, the scripted play, the order of tasks and the sampling in training."
    )
    listed = "\n".join(f"- {verdict}" for verdict in verdicts)
    body = table(("policy", *map(label, _METRICS)), rows)
    text = f"# {reports[0].title}: {len(reports)} seeds\n\n{body}\n\n{note}\n\n{listed}\n"
    return write(output / REPORT_FILE, text)


def folders(output: Path) -> dict[str, Path]:
    """Returns the folder of each policy, by name."""
    return {BASE: output / "base", OUTCOME: output / "outcome", VPR: output / "vpr"}


def _print(report: Report) -> None:
    from hf_credit.evaluation.report import budget, shown
    from hf_credit.rollouts.metric_names import label

    used = {run.name: budget(run) for run in report.runs}
    rows = []
    for name, results in report.results.items():
        summary = results.summary()
        spent = [f"{used[name][what] or 0:,.0f}" if name in used else "" for what in ("episodes", "generated_tokens")]
        rows.append([name, *(shown(metric, summary[metric]) for metric in _METRICS), *spent])
    print_rows(["policy", *map(label, _METRICS), "episodes", "tokens"], rows)
    typer.echo("Means over held-out tasks [95% intervals]; episodes and tokens are those of training.\n")
    for comparison in report.comparisons:
        typer.echo(f"- {comparison.conclusion}")
    for note in report.notes:
        typer.echo(f"\n{note}")
