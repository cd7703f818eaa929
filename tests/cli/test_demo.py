from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoModelForCausalLM

from hf_credit.cli.demo import BASE, OUTCOME, VPR, DemoRecipe, _write_over_seeds, demo, run_demo
from hf_credit.evaluation.report import Report
from hf_credit.evaluation.results import EpisodeRecord, EvalResults
from hf_credit.evaluation.runs import read_run
from hf_credit.recipes import RECIPES
from hf_credit.tasks.spec import TaskSpec

ROOT = Path(__file__).resolve().parents[2]

# Enough warm-up for some valid actions, without which nothing can be learned.
TINY = DemoRecipe(
    blanks=2,
    base={"hidden_size": 32, "layers": 1, "episodes": 400, "quality": 1.0, "epochs": 2, "learning_rate": 8e-3},
    updates=2,
    trajectories=32,
    gradient_steps=2,
    held_out=24,
)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def report(output: Path, copied_trainings: None) -> Any:
    (one,) = run_demo(TINY, output)
    return one


def test_trainings_differ_only_in_reward_and_learning_rate(report: Any, output: Path) -> None:
    vpr, outcome = (yaml.safe_load((output / f"{name}.yaml").read_text()) for name in ("vpr", "outcome"))
    assert (vpr.pop("method"), outcome.pop("method")) == ("verifiable_process", "outcome_reward")
    assert vpr.pop("output_dir") != outcome.pop("output_dir")
    rates = (vpr.pop("learning_rate"), outcome.pop("learning_rate"))
    assert rates == (TINY.learning_rate, TINY.outcome_learning_rate)
    assert vpr == outcome


def test_both_trainings_begin_with_the_same_episodes(report: Any, output: Path) -> None:
    logs = [read_run(output / name).log for name in ("vpr", "outcome")]
    assert all("entropy" in entry for log in logs for entry in log if "loss" in entry)  # of steps without a signal too
    first = [log[0] for log in logs]
    for name in ("reward", "completion", "oracle/valid", "tokens/generated", "turns/mean"):
        assert first[0][name] == first[1][name]
    assert [run.last("budget/scoring_events") for run in report.runs] == [64, 64]


def test_all_policies_meet_the_same_held_out_tasks(report: Any, output: Path) -> None:
    kept = {name: EvalResults.load(output / name / "evaluation.json") for name in ("base", "vpr", "outcome")}
    seeds = [one.seed for one in kept["base"].records]
    assert seeds == list(range(2**31, 2**31 + 24))
    assert all([one.seed for one in results.records] == seeds for results in kept.values())
    tasks = [{**TaskSpec.load(output / name).to_dict(), "method": None} for name in kept]
    assert tasks[1:] == tasks[:-1]


def test_differences_are_reported_with_their_verdicts(report: Any, output: Path) -> None:
    pairs = {(one.of, one.minus, one.metric) for one in report.comparisons}
    assert pairs == {(VPR, other, metric) for other in (OUTCOME, BASE) for metric in ("success", "completion")} | {
        (OUTCOME, BASE, metric) for metric in ("success", "completion")
    }
    page = (output / "report.md").read_text()
    for comparison in report.comparisons:
        assert comparison.conclusion in page
        assert ("excludes 0" in comparison.conclusion) == comparison.excludes_zero
    assert (output / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((output / "results.json").read_text())
    assert numbers["budgets"][VPR]["episodes"] == numbers["budgets"][OUTCOME]["episodes"] == 64
    assert numbers["runs"][VPR]["versions"]["trl"].startswith("1.")


def test_verdicts_and_outcomes_share_no_axis(report: Any, output: Path) -> None:
    vpr, outcome = ({name for entry in run.log for name in entry} for run in report.runs)
    assert "process_reward/mean" in vpr
    assert "process_reward/mean" not in outcome


def test_training_changed_the_policy(report: Any, output: Path) -> None:
    base, vpr = (AutoModelForCausalLM.from_pretrained(output / name).state_dict() for name in ("base", "vpr"))
    assert any((base[name] != vpr[name]).any() for name in base)


def test_a_recipe_out_of_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="quality must be in"):
        run_demo(DemoRecipe(base={"quality": 2}), tmp_path)


def test_the_report_of_one_seed_explains_its_intervals(report: Any, output: Path) -> None:
    sentence = "The intervals cover only the draw of the 24 held-out tasks. Each method was trained once"
    assert any(note.startswith(sentence) for note in report.notes)
    assert sentence in (output / "report.md").read_text()


def test_an_update_is_cut_into_gradient_steps(report: Any, output: Path) -> None:
    assert [run.updates for run in report.runs] == [4, 4]
    settings = yaml.safe_load((output / "vpr.yaml").read_text())
    assert (settings["per_device_train_batch_size"], settings["steps_per_generation"]) == (16, 2)


def test_the_recipe_of_the_documents_trains_as_the_demo_does() -> None:
    recipe = yaml.safe_load(RECIPES["sudoku_micro"].read_text())
    demos = DemoRecipe().training("verifiable_process", Path("runs/sudoku_micro_base"), Path("runs/sudoku_micro"))
    assert demos == {**recipe, **{name: demos[name] for name in ("seed", "logging_steps", "disable_tqdm")}}


def evaluated(right: int, completed: float) -> EvalResults:
    """Results on four tasks, of which `right` are solved and the others have this completion."""
    records = [
        EpisodeRecord(
            seed=task,
            outcome=float(task < right),
            ending="finished",
            metrics={"success": float(task < right), "completion": 1.0 if task < right else completed},
        )
        for task in range(4)
    ]
    return EvalResults(records=tuple(records))


def test_several_seeds_are_compared_run_by_run(tmp_path: Path) -> None:
    # Success of VPR minus that of outcome reward: 0.5, 0.25, 0.75; on a scale of 0 to 1 mean 0.75, standard deviation
    # 0.125, so e = 36, and t(0.975; 2) = 4.3027: Wilson gives 0.3988 to 0.9315.
    reports = [
        Report(title="Both", results={BASE: evaluated(0, 0.5), OUTCOME: evaluated(b, 0.5), VPR: evaluated(a, 0.5)})
        for a, b in ((3, 1), (2, 1), (4, 1))
    ]
    page = _write_over_seeds(reports, tmp_path).read_text()
    assert "# Both: 3 seeds" in page
    assert "| outcome reward | 25.0% [11.0, 67.1], n = 3 |" in page
    assert "| VPR | 75.0% [18.9, 97.5], n = 3 |" in page
    assert (
        "- VPR minus outcome reward, success rate: +50.0 points; the 95% interval [-20.2, +86.3] includes 0, so "
        "the difference is not significant over these seeds." in page
    )
    assert "outcome reward minus base, success rate: +25.0 points; the 95% interval [-45.2, +67.1] includes 0" in page


def test_defaults_of_the_command_are_those_of_the_recipe() -> None:
    offered = {name: parameter.default for name, parameter in inspect.signature(demo).parameters.items()}
    recipe = DemoRecipe()
    assert (offered["updates"], offered["episodes"], offered["seed"]) == (recipe.updates, recipe.held_out, recipe.seed)
    assert offered["seeds"] == 1
