from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoModelForCausalLM

from hf_credit.cli.demo import BASE, ENDS, LATE, OUTCOME, VPR, DemoRecipe, demo, run_demo
from hf_credit.evaluation.results import EvalResults
from hf_credit.evaluation.runs import read_run
from hf_credit.recipes import RECIPES
from hf_credit.tasks.spec import TaskSpec

ROOT = Path(__file__).resolve().parents[2]

# Enough warm-up for some valid actions, without which nothing can be learned.
TINY = DemoRecipe(
    blanks=2,
    base={"hidden_size": 32, "layers": 1, "episodes": 400, "quality": 1.0, "epochs": 2, "learning_rate": 8e-3},
    tokens=150,
    trajectories=32,
    gradient_steps=2,
    held_out=24,
)
TRAINED = ("outcome", "late", "vpr")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def reports(folder: Path, copied_trainings: None) -> Mapping[int, Any]:
    return run_demo([TINY, replace(TINY, blanks=3)], folder)


@pytest.fixture(scope="module")
def report(reports: Mapping[int, Any]) -> Any:
    return reports[2]


@pytest.fixture(scope="module")
def output(folder: Path) -> Path:
    return folder / "2_decisions"


def test_trainings_differ_only_in_credit_and_where_episodes_begin(report: Any, output: Path) -> None:
    outcome, late, vpr = (yaml.safe_load((output / f"{name}.yaml").read_text()) for name in TRAINED)
    for one in (outcome, late, vpr):
        del one["output_dir"]
    assert vpr == {**outcome, "method": "verifiable_process"}
    groups = {"instances_per_update": 2, "per_device_train_batch_size": 2, "method_options": {"group_size": 8}}
    assert outcome["instances_per_update"] == outcome["per_device_train_batch_size"] == 2 * 8
    assert late == {**outcome, "method": "grpo", "starts": "oracle", **groups}


def test_trainings_begin_with_the_same_episodes(report: Any, output: Path) -> None:
    logs = [read_run(output / name).log for name in TRAINED]
    assert all("entropy" in entry for log in logs for entry in log if "loss" in entry)  # of steps without a signal too
    outcome, _, vpr = (log[0] for log in logs)
    for name in ("reward", "completion", "oracle/valid", "tokens/generated", "turns/mean"):
        assert outcome[name] == vpr[name]


def test_trainings_end_with_the_generation_that_reaches_the_tokens(report: Any, output: Path) -> None:
    for name in TRAINED:
        steps = [entry for entry in read_run(output / name).log if "loss" in entry]
        assert len(steps) % 2 == 0
        *before, last = (entry["budget/completion_tokens"] for entry in steps[::2])  # of a generation's first step
        assert last >= 2 * 150 > max(before, default=0)


def test_all_policies_meet_the_same_held_out_tasks(report: Any, output: Path) -> None:
    kept = {name: EvalResults.load(output / name / "evaluation.json") for name in ("base", *TRAINED)}
    seeds = [one.seed for one in kept["base"].records]
    assert seeds == list(range(2**31, 2**31 + 24))
    assert all([one.seed for one in results.records] == seeds for results in kept.values())
    tasks = [{**TaskSpec.load(output / name).to_dict(), "method": None} for name in kept]
    assert tasks[1:] == tasks[:-1]


def test_differences_are_reported_with_their_verdicts(report: Any, output: Path) -> None:
    pairs = {(one.of, one.minus, one.metric) for one in report.comparisons}
    compared = ((VPR, OUTCOME), (LATE, OUTCOME), (OUTCOME, BASE))
    assert pairs == {(*pair, metric) for pair in compared for metric in ("success", "completion")}
    page = (output / "report.md").read_text()
    for comparison in report.comparisons:
        assert comparison.conclusion in page
        assert ("excludes 0" in comparison.conclusion) == comparison.excludes_zero
    assert (output / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((output / "results.json").read_text())
    assert numbers["runs"][VPR]["versions"]["trl"].startswith("1.")


def test_the_first_page_has_both_ends(reports: Mapping[int, Any], folder: Path) -> None:
    page = (folder / "report.md").read_text()
    assert f"| decisions | held-out tasks | {BASE} | {OUTCOME} | {LATE} | {VPR} |" in page
    for blanks, report in reports.items():
        assert f"| {blanks} | success rate |" in page
        (of_success, *_) = report.comparisons
        assert f"- {blanks} decisions: {of_success.conclusion}" in page


def test_verdicts_and_outcomes_share_no_axis(report: Any, output: Path) -> None:
    outcome, _, vpr = ({name for entry in run.log for name in entry} for run in report.runs)
    assert "process_reward/mean" in vpr
    assert "process_reward/mean" not in outcome


def test_training_changed_the_policy(report: Any, output: Path) -> None:
    base, vpr = (AutoModelForCausalLM.from_pretrained(output / name).state_dict() for name in ("base", "vpr"))
    assert any((base[name] != vpr[name]).any() for name in base)


def test_a_recipe_out_of_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="quality must be in"):
        run_demo([DemoRecipe(base={"quality": 2})], tmp_path)


def test_the_report_explains_its_intervals(report: Any, output: Path) -> None:
    sentence = "The intervals cover only the draw of the 24 held-out tasks. Each arm was trained once"
    assert any(note.startswith(sentence) for note in report.notes)
    assert sentence in (output / "report.md").read_text()


def test_the_recipe_of_the_documents_trains_as_the_demo_does() -> None:
    recipe = yaml.safe_load(RECIPES["sudoku_micro"].read_text())
    demos = DemoRecipe().training(VPR, Path("runs/sudoku_micro_base"), Path("runs/sudoku_micro"))
    others = (
        "seed",
        "logging_steps",
        "disable_tqdm",
        "max_steps",
        "max_sampled_tokens",
    )  # it ends after 20 generations
    assert demos == {**recipe, **{name: demos[name] for name in others}}


def test_defaults_of_the_command_are_those_of_the_recipe() -> None:
    offered = {name: parameter.default for name, parameter in inspect.signature(demo).parameters.items()}
    recipe = DemoRecipe()
    assert (offered["tokens"], offered["episodes"], offered["seed"]) == (recipe.tokens, recipe.held_out, recipe.seed)
    assert ENDS == (4, 12)
