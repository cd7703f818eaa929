"""`hf-credit demo`: few decisions, where the outcome is enough, and many, where credit pays, on a CPU."""

from __future__ import annotations

import contextlib
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.init_policy import create
from hf_credit.cli.progress import Progress, be_quiet, print_rows
from hf_credit.cli.side_by_side import Training, threads_each, train_side_by_side
from hf_credit.evaluation.runs import read_run, write_config
from hf_credit.files import write
from hf_credit.recipes import find, read

if TYPE_CHECKING:
    from hf_credit.evaluation.report import Report

BASE, OUTCOME, LATE, VPR = "base", "outcome reward", "late starts", "VPR"
ENDS = (4, 12)
"""Decisions of an episode: blanks of a puzzle."""
_GROUP = 8
_ARMS: Mapping[str, Mapping[str, Any]] = {
    OUTCOME: {"method": "outcome_reward"},
    LATE: {"method": "grpo", "method_options": {"group_size": _GROUP}, "starts": "oracle"},
    VPR: {"method": "verifiable_process"},
}
_METRICS = ("success", "completion")
_PAIRS = ((VPR, OUTCOME), (LATE, OUTCOME), (OUTCOME, BASE))


@dataclass(frozen=True, kw_only=True)
class DemoRecipe:
    """The settings of one end of the demo: those of the recipe `sudoku_micro`, with these in place of its own. The
    trainings share them, except what gives credit and where episodes begin.

    Attributes:
        size, blanks: options of the Sudoku environment.
        base: the size and the warm-up of the base policy, as for `MicroConfig`.
        tokens: tokens that each training samples for each blank.
        trajectories: episodes per update.
        gradient_steps: optimizer steps per update, each on an equal part of its episodes.
        held_out: the number of held-out tasks for the comparison.
        seed: of the weights, the trainings and the evaluation.
    """

    size: int = 4
    blanks: int = 8
    base: Mapping[str, Any] = field(
        default_factory=lambda: {"layers": 1, "episodes": 2000, "quality": 0.82, "epochs": 2, "learning_rate": 8e-3}
    )
    tokens: int = 7_500
    trajectories: int = 128
    gradient_steps: int = 8
    held_out: int = 512
    seed: int = 0

    @property
    def budget(self) -> int:
        """Tokens that each training samples."""
        return self.tokens * self.blanks

    def recipe(self) -> dict[str, Any]:
        """Returns the recipe of training, evaluation and the scripted player, with this task."""
        known = read(find("sudoku_micro"))
        task = {**known["task_options"], "size": self.size, "blanks": self.blanks}
        return {**known, "task_options": task}

    def setup(self) -> dict[str, Any]:
        """Returns the fields of the recipe that are those of a `TaskSpec`."""
        recipe = self.recipe()
        return {name: recipe[name] for name in ("task", "task_options", "history", "instructions")}

    def training(self, arm: str, base: Path, output: Path) -> dict[str, Any]:
        """Returns the recipe of one training for `hf-credit train`."""
        episodes = self.trajectories // self.gradient_steps
        rows = episodes // _GROUP if arm == LATE else episodes
        return {
            **self.recipe(),
            **_ARMS[arm],
            "model_name_or_path": str(base),
            "output_dir": str(output),
            "max_steps": 2_000,
            "max_sampled_tokens": self.budget,
            "instances_per_update": rows,
            "per_device_train_batch_size": rows,
            "rows_per_forward": 64,
            "steps_per_generation": self.gradient_steps,
            "warmup_steps": self.gradient_steps,
            "seed": self.seed,
            "logging_steps": 1,
            "disable_tqdm": True,
        }


def demo(
    output: Annotated[Path, typer.Option(help="Output folder; earlier results in it are replaced.")] = Path(
        "runs/demo"
    ),
    tokens: Annotated[
        int, typer.Option(help="Tokens that each training samples for each decision of an episode.", min=1)
    ] = DemoRecipe.tokens,
    episodes: Annotated[
        int, typer.Option(help="Number of held-out tasks to compare on.", min=2)
    ] = DemoRecipe.held_out,
    seed: Annotated[int, typer.Option(help="Seed of the weights, the trainings and the evaluation.", min=0)] = 0,
) -> None:
    """Trains micro policies on 4x4 Sudoku with 4 and with 12 blanks: from the outcome alone, from the outcome of
    episodes that begin late in right play, and from an oracle's verdict on every move.

    With 4 blanks success is frequent and the outcome is enough; with 12 it is rare. The three trainings start from the
    same weights and sample as many tokens. Takes minutes on two cores and needs the extras statistics and viz.

    \b
    Examples:
      hf-credit demo
      hf-credit demo --output runs/short --tokens 2000
    """
    recipe = replace(DemoRecipe(), tokens=tokens, held_out=episodes, seed=seed)
    run_demo([replace(recipe, blanks=blanks) for blanks in ENDS], output)


def run_demo(recipes: Sequence[DemoRecipe], output: Path) -> dict[int, Report]:
    """Runs the demo, prints the results and writes them to `output`; returns the report of each end, by its blanks.

    Args:
        recipes: the ends, each with other blanks.
        output: the folder. Each end has a subfolder.

    Raises:
        ValueError: a setting is invalid, or a training failed.
        ImportError: scipy or matplotlib is missing.
    """
    from hf_credit.evaluation.markdown import table
    from hf_credit.evaluation.plots import require_matplotlib
    from hf_credit.evaluation.report import REPORT_FILE, write_report
    from hf_credit.evaluation.statistics import mean_interval

    require_matplotlib()
    mean_interval([0.0, 1.0])
    be_quiet()
    begun = time.monotonic()
    with Progress() as progress, few_threads():
        for one in recipes:
            make_base(one, end_of(output, one), progress)
        train_all(recipes, output, progress)
        results = {one.blanks: _evaluate(one, end_of(output, one), progress) for one in recipes}
    reports = {one.blanks: _report(one, end_of(output, one), results[one.blanks]) for one in recipes}
    for one in recipes:
        write_report(reports[one.blanks], end_of(output, one))
    header, rows, notes = _summary(reports)
    text = "\n\n".join(["# Few decisions and many", table(header, rows), *notes])
    path = write(output / REPORT_FILE, f"{text}\n")
    print_rows(header, rows)
    typer.echo("\n\n".join(notes))
    typer.echo(f"\nWrote {path} after {time.monotonic() - begun:.0f} seconds.")
    typer.echo(f"Next: {shlex.join(['hf-credit', 'report', str(folders(end_of(output, recipes[-1]))[VPR])])}")
    return reports


@contextlib.contextmanager
def few_threads() -> Iterator[None]:
    """Limits torch to the few threads from which a small policy gains."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads_each(len(ENDS)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_base(recipe: DemoRecipe, output: Path, progress: Progress) -> None:
    """Builds the policy that all trainings of an end start from, in the folder `folders(output)[BASE]`."""
    from hf_credit.policies.micro import MicroConfig
    from hf_credit.tasks import Sampling, TaskSpec

    sampling = Sampling(max_new_tokens=recipe.recipe()["max_completion_length"])
    config = MicroConfig(**recipe.base, seed=recipe.seed)
    create(TaskSpec(**recipe.setup(), sampling=sampling), config, output / "base", progress)


def train_all(recipes: Sequence[DemoRecipe], output: Path, progress: Progress) -> None:
    """Trains all arms of all ends in parallel, each in its folder of `folders(end_of(output, recipe))`.

    Raises:
        ValueError: a training failed.
    """
    trainings = []
    for one in recipes:
        known = folders(end_of(output, one))
        for arm in _ARMS:
            path = known[arm].with_suffix(".yaml")
            write_config(path, one.training(arm, known[BASE], known[arm]))
            name = f"{arm}, {one.blanks} decisions"
            trainings.append(Training(name=name, recipe=path, folder=known[arm], tokens=one.budget))
    train_side_by_side(trainings, progress)


def _evaluate(recipe: DemoRecipe, output: Path, progress: Progress) -> dict[str, Any]:
    from hf_credit.evaluation.play import evaluate_model
    from hf_credit.tasks import TaskSpec

    results = {}
    for name, folder in folders(output).items():
        spec = TaskSpec.load(folder)
        assert spec is not None  # written with the policy
        with progress.playing(f"evaluate {name}, {recipe.blanks} decisions"):
            results[name] = evaluate_model(str(folder), spec, recipe.held_out, seed=recipe.seed, device="cpu")
        write(folder / "evaluation.json", results[name].to_json())
    return results


def _report(recipe: DemoRecipe, output: Path, results: dict[str, Any]) -> Report:
    from hf_credit.evaluation.report import Report, budget, compare

    runs = [read_run(folders(output)[arm], arm) for arm in _ARMS]
    notation = recipe.setup()["task_options"]["notation"]
    spent = [f"{arm} {budget(run)['generated_tokens'] or math.nan:,.0f}" for arm, run in zip(_ARMS, runs, strict=True)]
    return Report(
        title=f"{recipe.blanks} decisions",
        introduction=(
            f"A micro policy for {recipe.size}x{recipe.size} Sudoku with {recipe.blanks} blanks, in the notation "
            f"`{notation}`, was warmed up on {recipe.base['episodes']} scripted episodes whose actions are "
            f"oracle-valid with probability {recipe.base['quality']:g} (*{BASE}*). It was then trained three times "
            f"with equal tokens: with the oracle's verdict on each action (*{VPR}*), with only the outcome of the "
            f"episode (*{OUTCOME}*), and with the outcome of episodes that begin late in the oracle's play "
            f"(*{LATE}*)."
        ),
        runs=runs,
        results=results,
        comparisons=[one for pair in _PAIRS for one in compare(results, *pair)],
        notes=[
            f"Sampled tokens: {', '.join(spent)}. A training ends with the update that reaches {recipe.budget:,}.",
            f"The intervals cover only the draw of the {recipe.held_out} held-out tasks. Each arm was trained once, "
            f"with seed {recipe.seed}, so they do not cover other seeds.",
        ],
    )


def _summary(reports: Mapping[int, Report]) -> tuple[list[str], list[list[str]], list[str]]:
    """The header and the rows of the table over all ends, and what is said below it."""
    from hf_credit.evaluation.report import shown
    from hf_credit.rollouts.metric_names import label

    rows = []
    for blanks, report in reports.items():
        summaries = [results.summary() for results in report.results.values()]
        for metric in _METRICS:
            rows.append([str(blanks), label(metric), *(shown(metric, one[metric]) for one in summaries)])
    said = [
        f"- {blanks} decisions: {one.conclusion}"
        for blanks, report in reports.items()
        for one in report.comparisons
        if one.metric == "success"
    ]
    last = [*reports.values()][-1]
    header = ["decisions", "held-out tasks", *last.results]
    return header, rows, ["\n".join(said), last.notes[-1]]


def end_of(output: Path, recipe: DemoRecipe) -> Path:
    """Returns the folder of an end."""
    return output / f"{recipe.blanks}_decisions"


def folders(output: Path) -> dict[str, Path]:
    """Returns the folder of each policy of an end, by name."""
    return {BASE: output / "base", OUTCOME: output / "outcome", LATE: output / "late", VPR: output / "vpr"}
