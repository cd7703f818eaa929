"""The fields of the bench: their dials, what can be gained in them, and which cells a full run has."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from hf_credit import methods
from hf_credit_bench import Problem, Truth, fields, make_problem
from hf_credit_bench.cells import conditions
from hf_credit_bench.fields import BASE, EXACT, JUDGED, LADDER, MIDDLE, RUNGS, STARTS
from hf_credit_bench.network import Network, policy_at_start
from hf_credit_bench.problems import Trap
from hf_credit_bench.rules import Rules
from hf_credit_bench.table import TablePolicy


@pytest.mark.parametrize("rung", [one for one in RUNGS if one.field], ids=lambda one: f"{one.problem} {one.said}")
def test_the_dials_of_a_field_have_its_length_and_its_success_at_the_start(rung: fields.Rung) -> None:
    assert rung.field is not None
    length, success = rung.field
    world = make_problem(rung.problem, **rung.dials)
    assert length in rung.dials.values()
    assert Truth(policy_at_start(world)).judged == pytest.approx(success, rel=0.005)


def enumerated(policy: TablePolicy, starts: Any) -> tuple[float, float]:
    """J, and the share of decisions that are judged wrong, by every way in which an episode can go."""
    problem = policy.problem

    def ahead(node: Any, share: float) -> np.ndarray:
        if not (speakers := problem.speakers(node)):
            return np.zeros(3)
        total = np.zeros(3)
        view = problem.view(node, speakers[0])
        for action in range(problem.actions(view)):
            taken = share * policy.of(view)[action]
            total += [0.0, taken * (1 - problem.right(node, action)), taken]
            for way in problem.ways(node, [action]):
                after = ahead(way.node, taken * way.probability)
                total += after
                total[0] += taken * way.probability * way.value
        return total

    worth, wrong, decisions = sum(ahead(way.node, way.probability) for way in starts)
    return worth, wrong / decisions


SMALL: list[Problem] = [
    Rules(length=5, tasks=3, letters=3, hidden=3, start_right=0.7, needed=0.8),
    Trap(horizon=5, needed=2, absorbs=0.5, start_right=0.3),
]


@pytest.mark.parametrize("problem", SMALL, ids=lambda one: one.name)
def test_values_and_gradients_are_those_of_an_enumeration_written_apart(problem: Problem) -> None:
    policy = policy_at_start(problem)
    truth = Truth(policy)
    assert truth.start == pytest.approx(enumerated(policy, problem.starts())[0])
    assert truth.judged == pytest.approx(enumerated(policy, problem.held_out() or problem.starts())[0])
    gradient = policy.pulled(truth.gradient)
    assert gradient.size > 8
    for place in itertools.islice(np.ndindex(gradient.shape), 0, None, 5):
        step = np.zeros_like(gradient)
        step[place] = 1e-4
        ends = [enumerated(policy.moved(sign * step), problem.starts())[0] for sign in (1, -1)]
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("problem", SMALL, ids=lambda one: one.name)
def test_a_policys_own_errors_are_those_of_an_enumeration_written_apart(problem: Problem) -> None:
    dials = {name: getattr(problem, name) for name in problem.__dataclass_fields__}  # type: ignore[attr-defined]
    rung = fields.Rung(problem.name, dials)
    assert fields.own_error(rung) == pytest.approx(enumerated(policy_at_start(problem), problem.starts())[1])


def binomial(rights: list[float], allowed: int) -> float:
    """The probability of at most `allowed` errors in independent decisions that are right with these probabilities."""
    shares = [1.0]
    for right in rights:
        pairs = zip([0.0, *shares], [*shares, 0.0], strict=True)
        shares = [wrong * (1 - right) + same * right for wrong, same in pairs]
    return sum(shares[: allowed + 1])


@pytest.mark.parametrize("rung", [one for one in RUNGS if one.problem == LADDER], ids=lambda one: one.said)
def test_the_value_of_rules_is_that_of_their_definition_without_the_steps_of_the_bench(rung: fields.Rung) -> None:
    rules = make_problem(rung.problem, **rung.dials)
    assert isinstance(rules, Rules)
    policy, (words, rule) = policy_at_start(rules), rules._drawn
    found = []
    for word in words:
        pairs = [(before, letter, place) for place, (before, letter) in enumerate(zip([4, *word], word, strict=False))]
        rights = [float(policy.of(view)[rule[view[:2]]]) for view in pairs]
        found.append(binomial(rights, rules.length // 10))
    truth = Truth(policy)
    assert truth.start == pytest.approx(np.mean(found[:16]), rel=1e-9)
    assert truth.judged == pytest.approx(np.mean(found[16:]), rel=1e-9)


@pytest.mark.parametrize("length", [4, 16])
def test_the_value_and_the_gradient_of_a_chain_are_those_of_its_formula(length: int) -> None:
    (rung,) = (one for one in RUNGS if (one.problem, one.field) == ("chain", (length, 0.1)))
    policy, right = policy_at_start(make_problem("chain", **rung.dials)), rung.dials["start_right"]
    truth = Truth(policy)
    assert truth.start == pytest.approx(right**length)
    by_view = dict(zip(policy.places, truth.gradient[:, 1], strict=True))
    assert by_view == {
        (step, alive): pytest.approx(alive * right**length * (1 - right))
        for step in range(length)
        for alive in ((1,) if step == 0 else (0, 1))
    }


def test_the_words_of_rules_are_other_ones_where_learning_is_judged_and_the_network_reads_no_word() -> None:
    rules = Rules(length=6, tasks=4)
    trained, others = ({way.node[0] for way in ways} for ways in (rules.starts(), rules.held_out()))
    assert not trained & others
    words = [rules._drawn[0][word] for word in sorted(trained | others)]
    assert len({tuple(word) for word in words}) == 8
    before, letter = words[0][1], words[0][2]
    assert rules.view((0, 2, 0), "agent") == (before, letter, 2)
    assert len(rules.features((before, letter, 2))) == 2 * rules.letters + 2
    assert isinstance(policy_at_start(rules), Network)


def test_most_decisions_must_be_right() -> None:
    rules = Rules(length=10, needed=0.9)
    for wrong, success in ((0, 1.0), (1, 1.0), (2, 0.0)):
        node: Any = rules.starts()[0].node
        for place in range(10):
            right = rules._right(node)
            (way,) = rules.ways(node, [1 - right if place < wrong else right])
            node = way.node
        assert way.reward == success


def cell(method: str, area: float, rung: fields.Rung, **more: Any) -> dict[str, Any]:
    """A cell of ten equal seeds but for a little spread."""
    areas = [area + 0.001 * seed for seed in range(10)]
    kind = {"method": method, "problem": rung.problem, "dials": dict(rung.dials), "options": {}, "policy": "start"}
    critic = conditions(method, "taught", 0.0)["critic"]
    return {"key": f"{kind} {more}", **kind, "critic": critic, "updates": 24, "refused": None, "areas": areas, **more}


def planned(known: list[dict[str, Any]]) -> dict[tuple[str, Any], set[tuple[str, float, bool]]]:
    found: dict[tuple[str, Any], set[tuple[str, float, bool]]] = {}
    for job in fields.plan(known, critic="taught", updates=24):
        rung = fields.rung_of({"problem": job.problem, "dials": job.dials})
        found.setdefault((rung.problem, rung.field), set()).add((job.method, job.oracle_error, job.repeats))
    return found


FIRST = {(name, 0.0, False) for name in (BASE, EXACT, STARTS, JUDGED)}


def test_a_full_run_begins_with_the_references_on_every_rung() -> None:
    found = planned([])
    assert len(found) == len(RUNGS)
    assert all(jobs == FIRST for jobs in found.values())


def measured(rung: fields.Rung, exact: float, starts: float = 0.3, judged: float = 0.3) -> list[dict[str, Any]]:
    areas = {BASE: 0.3, EXACT: exact, STARTS: starts, JUDGED: judged}
    return [cell(name, area, rung) for name, area in areas.items()]


@pytest.mark.parametrize("areas", [{"exact": 0.41}, {"exact": 0.3, "starts": 0.41}, {"exact": 0.3, "judged": 0.41}])
def test_methods_are_measured_where_a_reference_gains_a_tenth(areas: dict[str, float]) -> None:
    rung = next(one for one in RUNGS if (one.problem, one.field) == (LADDER, MIDDLE))
    found = planned(measured(rung, **areas))[LADDER, MIDDLE]
    assert {name for name, *_ in found} > {*methods.METHODS, "reverse_curriculum"}
    assert {one for one in found if one[0] == JUDGED and one[1] == fields.JUDGE_ERROR}
    own = fields.own_error(rung)
    wrong = {(JUDGED, round(ratio * own, 4), again) for ratio in fields.RATIOS for again in (False, True)}
    assert wrong <= found
    assert planned(measured(rung, exact=0.39))[LADDER, MIDDLE] == FIRST
    assert planned([{**one, "updates": 50} for one in measured(rung, **areas)])[LADDER, MIDDLE] == FIRST


def test_elsewhere_the_best_of_each_kind_are_measured_and_what_fits_only_there() -> None:
    middle = next(one for one in RUNGS if (one.problem, one.field) == (LADDER, MIDDLE))
    vote = next(one for one in RUNGS if one.problem == "vote")
    others = [name for name in ("reverse_curriculum", *methods.METHODS) if name not in (BASE, JUDGED)]
    known = [cell(name, 0.5 if name in ("rloo", "maxrl", "ppo") else 0.1, middle) for name in others]
    known = [
        {**one, "areas": None, "refused": "no."} if one["method"] == "counterfactual_grpo" else one for one in known
    ]
    names = {name for name, *_ in planned([*measured(middle, 0.5), *known, *measured(vote, 0.5)])["vote", None]}
    assert {"rloo", "maxrl", "ppo", "counterfactual_grpo", "reverse_curriculum", JUDGED} <= names
    assert not {"grpo", "gspo", "hgpo"} & names
    twin = [{**one, "areas": measured(middle, 0.5)[0]["areas"]} if one["method"] == "rloo" else one for one in known]
    names = {name for name, *_ in planned([*measured(middle, 0.5), *twin, *measured(vote, 0.5)])["vote", None]}
    assert "maxrl" in names
    assert "rloo" not in names  # it is the outcome by another name


def test_requirements_of_methods_are_those_that_they_declare() -> None:
    def kind(method: str, problem: str = "chain", **more: Any) -> str:
        return fields.kind_of({"method": method, "problem": problem, "dials": {}, **more})

    names = ("rloo", "ppo", "carl", "active_replay", "counterfactual_grpo", "igpo", "constrained_counterfactual")
    assert [kind(name) for name in names] == ["outcome", "critic", "replays", "both", "team", "answers", "auditor"]
    assert kind("reverse_curriculum") == "starts"
    assert kind("my:method") == "own"
    assert kind("verifiable_process") == "oracle"
    assert kind("verifiable_process", oracle_error=0.1) == kind("verifiable_process", "hack") == "judge"


def test_gains_are_paired_differences_of_the_references_and_the_outcome() -> None:
    rung = RUNGS[0]
    found = fields.gains(measured(rung, 0.5, 0.2, 0.4))
    assert {name: round(one.mean, 6) for name, one in found.items()} == {EXACT: 0.2, STARTS: -0.1, JUDGED: 0.1}
    assert fields.worth_it(measured(rung, 0.5))
    assert not fields.worth_it(measured(rung, math.nextafter(0.4, 0)))
    assert not fields.gains([])
