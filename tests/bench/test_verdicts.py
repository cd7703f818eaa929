"""Trust in verdicts, in worlds whose values and errors are known by enumeration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hf_credit.diagnostics.bucket_sampling import BucketPlan
from hf_credit.diagnostics.policy import Subject
from hf_credit.diagnostics.verdicts import LINE, VerdictDiagnosis, diagnose_verdicts
from hf_credit.environments.randomness import stream
from hf_credit.rollouts import Engine, RolloutRequest
from hf_credit_bench import Problem
from hf_credit_bench.problem import Position, Way
from hf_credit_bench.table import TableChat, TablePolicy, TableSampler
from hf_credit_bench.truth import Truth

DOCS = Path(__file__).parents[2] / "docs"
PLAN = BucketPlan(buckets=96, candidates=3, replays=8)


@dataclass(frozen=True)
class Tasks(Problem):
    """Each task is a chain of two decisions, whose last action is right; success has more chance after right ones."""

    tasks: int = 48
    start_right: float = 0.8

    def starts(self) -> Sequence[Way]:
        return [Way(1 / self.tasks, (task, 0, 1)) for task in range(self.tasks)]

    def speakers(self, node: Any) -> Sequence[str]:
        return ("agent",) if node[1] < 2 else ()

    def actions(self, view: Any) -> int:
        return 3

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        task, step, alive = node
        after = (task, step + 1, int(alive and actions[0] == 2))
        success = (0.1 + (0.3 + 0.5 * (task % 2)) * after[2]) if step else 0.0
        return [way for way in (Way(1 - success, after), Way(success, after, 1.0)) if way.probability]

    def start(self, task: Any, seed: int) -> Position:
        return Position((task["task"], 0, 1), seed)

    def right(self, node: Any, action: int) -> float:
        return float(action == 2)


@dataclass(frozen=True)
class Bold(Tasks):
    """The last action gains 1 or nothing, the safe ones .25 for sure."""

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        task, step, _ = node
        if actions[0] == 2:
            return [Way(0.5, (task, step + 1, 1), 1.0), Way(0.5, (task, step + 1, 0), 0.0)]
        return [Way(1.0, (task, step + 1, 1), 0.25)]

    def right(self, node: Any, action: int) -> float:
        return float(action != 2)


@dataclass(frozen=True)
class Erring:
    """A judge whose verdict on a view and an action is flipped with a fixed probability, by what it would be."""

    problem: Problem
    wrong_accepted: float
    right_rejected: float
    seed: int

    def valid_actions(self, state: Any) -> frozenset[str]:
        return frozenset()

    def score(self, state: Any, action: str) -> float:
        right = self.problem.right(state.node, int(action))
        share = self.right_rejected if right else self.wrong_accepted
        return float(right) if stream(self.seed, repr(state.node), action).random() >= share else 1.0 - right


class Chat(TableChat):
    """A chat of tables whose contexts can be shown."""

    tokenizer = SimpleNamespace(decode=lambda ids: " ".join(map(str, ids)))


def diagnosed(problem: Problem, oracle: Any, seed: int, plan: BucketPlan = PLAN, tasks: int = 48) -> VerdictDiagnosis:
    policy = TablePolicy(problem)
    engine = Engine(problem, Chat(problem), TableSampler(policy, seed))  # type: ignore[arg-type]
    starts = [RolloutRequest[Any](task={"task": place}, seed=1000 * seed + place) for place in range(tasks)]
    return diagnose_verdicts(Subject(name="p", engine=engine), starts, plan, oracle)


@pytest.mark.parametrize(("accepted", "rejected"), [(0.1, 0.1), (0.4, 0.0)], ids=["error", "bias"])
def test_a_judge_of_known_error_and_bias_is_found_within_the_intervals(accepted: float, rejected: float) -> None:
    problem = Tasks()
    truth = Truth(TablePolicy(problem))
    lost = reach = wrong = 0.0  # by enumeration
    for (node, before), share in truth.reached.items():
        if (node, before) in truth.action_values:
            values, pi = truth.action_values[node, before], truth.policy.of(node)
            lost += share * sum(p * (max(values) - q) for p, q in zip(pi, values, strict=True))
            wrong += share * sum(
                p * (accepted * (max(values) - q) if action < 2 else rejected * (q - min(values)))
                for action, (p, q) in enumerate(zip(pi, values, strict=True))
            )
            reach += share * (max(values) - min(values))
    known = {"own_error": lost / reach, "error": wrong / reach, "accuracy": 1 - (accepted + rejected) / 2}
    assert known["own_error"] == pytest.approx(0.2)
    assert known["error"] == pytest.approx(0.2 * accepted + 0.8 * rejected)
    found = [diagnosed(problem, Erring(problem, accepted, rejected, seed), seed) for seed in range(6)]
    intervals = [(getattr(one, name), value) for one in found for name, value in known.items()]
    assert sum(not own.low <= value <= own.high for own, value in intervals) <= 2  # of 18 at a rate of 95 %
    assert all(0 < own.high - own.low < 0.5 for own, _ in intervals)
    assert not any(one.pays is False for one in found)  # it errs less than half as often as the policy


def test_a_perfect_judge_of_safe_moves_disagrees_where_safe_is_not_the_goal() -> None:
    problem = Bold()
    found = diagnosed(problem, Erring(problem, 0.0, 0.0, 0), 0)
    assert found.accuracy.high < 0.1
    assert found.agreement.high < 0
    assert found.pays is False
    assert found.note.startswith("p: verdicts may not pay: the oracle errs 4.6 times as often")
    goal = diagnosed(problem, Erring(problem, 1.0, 1.0, 0), 0)  # its opposite
    assert (goal.pays, goal.accuracy.low > 0.9, goal.unknown) == (True, True, 0)


def test_few_replays_of_moves_that_matter_little_do_not_tell() -> None:
    problem = Tasks(tasks=4)
    found = diagnosed(problem, Erring(problem, 0.5, 0.5, 0), 0, BucketPlan(buckets=4, candidates=2, replays=2), 4)
    assert found.pays is None
    assert "16 replays do not tell whether verdicts pay; raise --buckets or --replays" in found.note


def test_what_an_oracle_leaves_unknown_is_omitted_and_counted() -> None:
    problem, plan = Tasks(tasks=8), BucketPlan(buckets=8, candidates=3, replays=2)

    class Silent(Erring):
        def score(self, state: Any, action: str) -> float:
            return super().score(state, action) if action != "0" else math.nan

    known, found = (diagnosed(problem, kind(problem, 0.0, 0.0, 0), 0, plan, 8) for kind in (Erring, Silent))
    assert (known.unknown, sum(moves for *_, moves in known.reliability)) == (0, 24)
    assert (found.unknown, sum(moves for *_, moves in found.reliability)) == (8, 16)
    for kind, few in ((Erring, BucketPlan(buckets=8, candidates=3, replays=1)), (None, plan)):
        with pytest.raises(ValueError, match=r"at least 2 candidates and 2 replays|got none of 8"):
            diagnosed(problem, kind and kind(problem, 0.0, 0.0, 0), 0, few, 8)


def test_the_line_is_that_of_the_guide_which_is_written_from_measured_cells() -> None:
    line = f"{LINE.mean:g} [{LINE.low:g}, {LINE.high:g}]"
    for page, said in (("which-method", "the judge errs"), ("how-to-diagnose", "the oracle errs")):
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert f"{said} less than {line} times as often as the policy" in text
    problem = Bold()
    assert f"the line is at {line}." in diagnosed(problem, Erring(problem, 0.0, 0.0, 0), 0).note
