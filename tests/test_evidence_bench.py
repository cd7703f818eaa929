"""The evidence of `evaluation/bench`: its sums against numbers worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import RolloutRequest
from hf_credit.trainers.micro import init_scripted_policy
from hf_credit_bench import Problem, TablePolicy, cells, fields, guide, make_method, make_problem
from hf_credit_bench.measures import STEPS
from hf_credit_bench.play import Player, Ways
from hf_credit_bench.problems import Chain, Revisit

FOLDER = "bench"


def of_dials(module: ModuleType, claim: Any, areas: dict[tuple[str, int], list[float]]) -> Any:
    """What `statistics` says where each arm has these areas at each point."""
    filled = {}
    for place, dials in enumerate(claim.points):
        for arm in (claim.arm, claim.other):
            filled[module.key_of(arm, claim.problem, dials, arm)] = {"tokens": areas[arm.method, place]}
    return module.statistics(claim, filled)


def test_a_claim_is_a_difference_or_its_slope_over_the_dial(scripts: dict[str, ModuleType]) -> None:
    claims = scripts["claims"]
    points = [{"depth": 2}, {"depth": 4}, {"depth": 6}]
    settings = {"arm": claims.C3, "other": claims.MAGRPO, "problem": "relay", "points": points}
    areas = {
        ("replay_loo", 0): [0.2, 0.5],
        ("replay_loo", 1): [0.4, 0.5],
        ("replay_loo", 2): [0.6, 0.2],
        **{("magrpo", place): [0.1, 0.2] for place in range(3)},
    }
    mean = claims.Claim(name="mean", says="", **settings)
    np.testing.assert_allclose(of_dials(claims, mean, areas), [0.3, 0.2])
    slope = claims.Claim(name="slope", says="", turned=[2, 4, 6], **settings)
    np.testing.assert_allclose(of_dials(claims, slope, areas), [0.1, -0.075])


def test_every_primary_claim_has_a_registered_file(scripts: dict[str, ModuleType], root: Path) -> None:
    claims = scripts["claims"]
    for claim in claims.CLAIMS:
        if claim.primary:
            registered = claims._file(claim.family).read_text(encoding="utf-8")
            assert f"| {claim.name} | {claim.says} |" in registered
            assert f"| {claim.name} | {claim.says} |" in claims._file(claim.family, "_results").read_text(
                encoding="utf-8"
            )


@pytest.mark.parametrize("family", ["papers", "cvt"])
def test_the_committed_results_are_those_of_the_committed_lines(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    claims = scripts["claims"]
    committed = claims._file(family, "_results").read_text(encoding="utf-8")
    monkeypatch.setattr(claims, "HERE", tmp_path)
    claims.report(family)
    assert claims._file(family, "_results").read_text(encoding="utf-8") == committed


@pytest.fixture(scope="module")
def committed(root: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(root / "evaluation/bench/cells.parquet").to_pylist()
    return cells.from_rows(rows)


def test_the_committed_guide_and_tables_are_those_of_the_committed_cells(
    committed: list[dict[str, Any]], root: Path
) -> None:
    page = (root / "docs/which-method.md").read_text(encoding="utf-8")
    command = "hf-credit bench --output evaluation/bench --guide docs/which-method.md"
    assert page == guide.which_method(committed, command, "../evaluation/bench/")
    assert (root / "evaluation/bench/tables.md").read_text(encoding="utf-8") == guide.tables(committed)


def test_the_gains_in_the_guide_are_differences_of_means_of_the_committed_cells(
    committed: list[dict[str, Any]], root: Path
) -> None:
    page = (root / "docs/which-method.md").read_text(encoding="utf-8")
    table = page.partition("| You have |")[2].partition("\n\n")[0].splitlines()[2:]
    named = 0
    for line in table:
        kind, *row = (part.strip() for part in line.strip("|").split("|"))
        for rights, said in zip((0.5698, 0.8026, 0.8647, 0.6646, 0.5547), row, strict=True):
            if not (found := re.match(r"`(\w+)` ([+-][.\d]+) ", said)):
                continue
            error = 0.1 if "tenth" in kind else 0.0
            areas = {
                one["method"]: np.mean(one["areas"])
                for one in committed
                if one["problem"] == "rules" and one["dials"]["start_right"] == rights and one["areas"]
                if one["oracle_error"] in (0.0, error) and (one["method"] != found[1] or one["oracle_error"] == error)
            }
            assert f"{areas[found[1]] - areas['outcome_reward']:+.2f}" == found[2]
            named += 1
    assert named >= 8


def test_the_committed_cells_are_each_one_that_a_full_run_measures(committed: list[dict[str, Any]]) -> None:
    planned = [job.key for job in fields.plan(committed, critic="taught", seeds=10, updates=24)]
    keys = [one["key"] for one in committed]
    assert len(set(keys)) == len(keys) > 300
    assert set(keys) == set(planned)
    assert guide.UNKNOWN not in [one for row in guide.fields_of(committed).values() for one in row]


def test_the_committed_headroom_is_that_of_the_exact_gradient_and_the_committed_cells(
    committed: list[dict[str, Any]], scripts: dict[str, ModuleType], root: Path
) -> None:
    page = (root / "evaluation/bench/headroom.md").read_text(encoding="utf-8")
    assert page == scripts["headroom"].report(committed)
    # One decision: the logits part by sqrt(2) times the step in each update.
    logits = np.log(0.3 / 0.7) + np.sqrt(2) * 0.5 * np.arange(4)
    curve = scripts["headroom"].curve(Chain(length=1, start_right=0.3), 0.5, 4)
    np.testing.assert_allclose(curve, 1 / (1 + np.exp(-logits)))


def test_rungs_with_nothing_to_gain_hold_little_without_noise_either(
    committed: list[dict[str, Any]], scripts: dict[str, ModuleType]
) -> None:
    """Of the tables, whose tasks and actions are all that the noise of exact advantages comes from."""
    closed = [one for one in fields.RUNGS if not fields.worth_it(fields.on_rung(committed, one))]
    assert {one.problem for one in closed} == {"rules", "chain", "key", "late", "trap", "drift", "revisit", "sum_vote"}
    for rung in (one for one in closed if one.problem != "rules"):
        base = np.mean(fields.areas_of(fields.on_rung(committed, rung), fields.BASE) or [])
        assert scripts["headroom"].without_noise(make_problem(rung.problem, **rung.dials)) - base < fields.LEAST


def test_the_step_sizes_that_a_cell_tried_are_counted(scripts: dict[str, ModuleType]) -> None:
    for best in range(len(STEPS)):
        asked = set()

        def worth(place: int, best: int = best, asked: set[int] = asked) -> float:
            asked.add(place)
            return -abs(place - best)

        assert scripts["headroom"].chosen(worth, len(STEPS)) == best
        assert scripts["duration"].tried(best) == len(asked)


def test_half_of_the_fields_name_a_method_or_say_that_nothing_can_be_gained(committed: list[dict[str, Any]]) -> None:
    said = [one for row in guide.fields_of(committed).values() for one in row]
    assert sum(one == guide.NOTHING or not isinstance(one, str) for one in said) >= len(said) / 2


def test_step_sizes_do_not_end_at_a_bound(committed: list[dict[str, Any]]) -> None:
    steps = [one["step"] for one in committed if one["step"]]
    assert len(steps) > 100
    assert steps.count(STEPS[-1]) < len(steps) / 5


def test_half_way_is_where_half_of_the_gain_is_made(scripts: dict[str, ModuleType]) -> None:
    half_way = scripts["micro"].half_way
    assert half_way([(0, 0.2), (10, 0.5), (20, 0.7)], start=0.2, end=1.0, budget=100) == 20
    assert half_way([(0, 0.2), (10, 0.5)], start=0.2, end=1.0, budget=100) == 100


def test_a_networks_probabilities_in_all_views_make_a_table(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    micro, world = scripts["micro"], make_problem("chain", length=2, start_right=0.8)
    assert isinstance(world, Problem)
    starts = [RolloutRequest[Any](task={"seed": seed}) for seed in range(60)]
    config = MicroConfig(hidden_size=16, layers=1, heads=2, episodes=60, epochs=8, batch_rows=8)
    init_scripted_policy(world, micro.AtTheStart(TablePolicy(world)), starts, tmp_path / "start", config)
    model, tokenizer = (one.from_pretrained(tmp_path / "start") for one in (AutoModelForCausalLM, AutoTokenizer))
    table = micro.tabulated(model, tokenizer, world)
    assert table.probabilities.shape == (len(world.views), 2)
    np.testing.assert_allclose(table.probabilities[:, 1], 0.8, atol=0.1)


def enumerated_gradient(problem: Problem, size: int, commit: str) -> Any:
    """The mean gradient of VPR in state groups over all draws, of shape (views, actions)."""
    ways, policy = Ways(), TablePolicy(problem)
    method = make_method("verifiable_process", whiten=False, state_group_size=size, commit=commit)
    played = ways.all(lambda: Player(method, problem, policy, instances=1, ways=ways).update().gradient)
    return sum(share * gradient for share, gradient in played)


@pytest.mark.parametrize(("commit", "alive"), [("random", 0.3), ("best", 1 - 0.7**2)])
def test_committing_the_best_reply_weights_states_by_how_often_the_best_of_the_group_visits_them(
    commit: str, alive: float, scripts: dict[str, ModuleType]
) -> None:
    """A right action has probability p = 0.3. The logit of a state's right action moves by p (1 - p) = 0.21 times the
    probability of the state: that of the policy, 0.3 after a right first action, or that of the best of two, 0.51."""
    problem = Chain(length=2, start_right=0.3)
    gradient = enumerated_gradient(problem, 2, commit)
    assert dict(zip(problem.views, gradient[:, 1], strict=True)) == {
        (0, 1): pytest.approx(0.21),
        (1, 1): pytest.approx(0.21 * alive),
        (1, 0): pytest.approx(0.21 * (1 - alive)),
    }
    formula = scripts["state_groups"].expected_gradient
    np.testing.assert_allclose(gradient, formula(problem, TablePolicy(problem), 2, commit), atol=1e-9)


@pytest.mark.parametrize(
    ("problem", "size"), [(Revisit(length=1, horizon=2), 2), (Chain(length=2, start_right=0.3), 3)]
)
def test_the_gradient_of_state_groups_is_that_of_the_page_where_places_recur_and_in_groups_of_any_size(
    problem: Problem, size: int, scripts: dict[str, ModuleType]
) -> None:
    formula = scripts["state_groups"].expected_gradient(problem, TablePolicy(problem), size, "best")
    np.testing.assert_allclose(enumerated_gradient(problem, size, "best"), (size - 1) * formula, atol=1e-9)
