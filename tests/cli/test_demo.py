from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoModelForCausalLM

from hf_credit.cli.demo import BASE, OUTCOME, VPR, DemoRecipe, demo, run_demo
from hf_credit.evaluation.results import EvalResults
from hf_credit.evaluation.runs import read_run
from hf_credit.tasks.spec import TaskSpec

# Enough warm-up for a valid action now and then, without which there is nothing to learn from.
TINY = DemoRecipe(
    blanks=2, hidden_size=32, scripted_episodes=1600, quality=1.0, updates=2, trajectories=32, held_out=24
)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def report(output: Path) -> Any:
    return run_demo(TINY, output)


def test_both_trainings_differ_in_the_reward_alone(report: Any, output: Path) -> None:
    vpr, outcome = (yaml.safe_load((output / f"{name}.yaml").read_text()) for name in ("vpr", "outcome"))
    assert (vpr.pop("method"), outcome.pop("method")) == ("verifiable_process", "outcome_reward")
    assert vpr.pop("output_dir") != outcome.pop("output_dir")
    assert vpr == outcome


def test_both_trainings_begin_with_the_same_episodes(report: Any, output: Path) -> None:
    first = [read_run(output / name).log[0] for name in ("vpr", "outcome")]
    for name in ("reward", "completion", "oracle/valid", "tokens/generated", "turns/mean", "entropy"):
        assert first[0][name] == first[1][name]
    assert [run.episodes for run in report.runs] == [64, 64]


def test_all_policies_meet_the_same_held_out_tasks(report: Any, output: Path) -> None:
    kept = {name: EvalResults.load(output / name / "evaluation.json") for name in ("base", "vpr", "outcome")}
    seeds = [one.seed for one in kept["base"].records]
    assert seeds == list(range(2**31, 2**31 + 24))
    assert all([one.seed for one in results.records] == seeds for results in kept.values())
    tasks = [{**TaskSpec.load(output / name).to_dict(), "method": None} for name in kept]
    assert tasks[1:] == tasks[:-1]


def test_differences_with_verdicts_are_told(report: Any, output: Path) -> None:
    pairs = {(one.of, one.minus, one.metric) for one in report.comparisons}
    assert pairs == {(VPR, other, metric) for other in (OUTCOME, BASE) for metric in ("success", "completion")}
    page = (output / "report.md").read_text()
    for comparison in report.comparisons:
        assert comparison.verdict in page
        assert ("excludes 0" in comparison.verdict) == comparison.excludes_zero
    assert (output / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((output / "results.json").read_text())
    assert numbers["budgets"][VPR]["episodes"] == numbers["budgets"][OUTCOME]["episodes"] == 64
    assert numbers["runs"][VPR]["versions"]["trl"].startswith("1.")


def test_training_changed_the_policy(report: Any, output: Path) -> None:
    base, vpr = (AutoModelForCausalLM.from_pretrained(output / name).state_dict() for name in ("base", "vpr"))
    assert any((base[name] != vpr[name]).any() for name in base)


def test_a_recipe_out_of_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="quality must be in"):
        run_demo(DemoRecipe(quality=2), tmp_path)


def test_what_the_command_offers_is_what_the_recipe_says() -> None:
    offered = {name: parameter.default for name, parameter in inspect.signature(demo).parameters.items()}
    recipe = DemoRecipe()
    assert (offered["updates"], offered["episodes"], offered["seed"]) == (recipe.updates, recipe.held_out, recipe.seed)
