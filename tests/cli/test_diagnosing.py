from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hf_credit.diagnostics.bucket_sampling import BucketPlan
from hf_credit.diagnostics.diagnosis_report import numbers
from hf_credit.diagnostics.policy import Tasks, diagnose_policy, load_subject, replies_at_most
from hf_credit.rollouts.capabilities import Oracled
from hf_credit.rollouts.pulse import PULSE
from hf_credit.tasks.spec import TaskSpec

PLAN = BucketPlan(buckets=4, candidates=3, replays=2, value_actions=2, draws=6)
TASKS = Tasks(episodes=6)


def diagnose_model(model, setup, plan, attempts=0, **loading):
    oracle = Oracled(setup.build()).check_oracle(None)
    subject, starts = load_subject(model, setup, plan, **loading)
    return diagnose_policy(subject, starts, plan, oracle=oracle, attempts=attempts)


def test_a_collaboration_s_policy_is_diagnosed_and_played(relay_policy) -> None:
    replies = PULSE.replies
    setup = TaskSpec.load(relay_policy)
    found = diagnose_model(str(relay_policy), setup, PLAN, tasks=TASKS, attempts=2, device="cpu")
    assert len(found.buckets) == PLAN.buckets
    assert set(found.success) == {"greedy", "pass@1", "pass@2"}
    assert found.success["pass@1"].mean <= found.success["pass@2"].mean
    assert {interval.n for interval in found.success.values()} == {6}
    assert PULSE.replies - replies == sum(found.cost.decisions.values()) <= replies_at_most(6, 2, PLAN, 2)
    assert found.cost.scoring_events == 6 * 3 + sum(2 * (len(one.candidates) + 2) for one in found.buckets)
    assert found.about["plan"]["buckets"] == PLAN.buckets
    again = diagnose_model(str(relay_policy), setup, PLAN, tasks=TASKS, attempts=2, device="cpu", name="p")
    again = replace(again, name=found.name)
    # Compared as written, with null for undefined numbers, since NaN does not equal itself.
    assert numbers([again]) == numbers([found])
    assert again.buckets == found.buckets


def test_exact_values_are_shown_with_the_estimates(relay_policy) -> None:
    setup = TaskSpec.load(relay_policy)
    short = replace(setup, sampling=replace(setup.sampling, max_new_tokens=2))
    found = diagnose_model(str(relay_policy), short, PLAN, tasks=TASKS, exact_floor=1e-2, device="cpu")
    assert all(bucket.exact is not None for bucket in found.buckets)
    assert "exact" in found.events[0].credits[0].fidelity
    assert not math.isnan(found.events[0].mean_return.mean)


def test_the_oracle_of_an_environment_judges_its_policy(trained_run) -> None:
    found = diagnose_model(str(trained_run), TaskSpec.load(trained_run), PLAN, tasks=TASKS, device="cpu")
    assert [credit.method for credit in found.events[0].credits] == [
        "verifiable_process",
        "replay_loo",
        "magrpo",
        "outcome_reward",
    ]
    assert found.events[0].influence is None
    assert found.success == {}


def test_what_cannot_be_diagnosed_is_refused(relay_policy, trained_run) -> None:
    relay, sudoku = TaskSpec.load(relay_policy), TaskSpec.load(trained_run)
    with pytest.raises(ValueError, match=r"--exact needs a collaboration .*, got the task 'sudoku'"):
        diagnose_model(str(trained_run), sudoku, PLAN, exact_floor=0.1)
    greedy = replace(relay, sampling=replace(relay.sampling, temperature=0))
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        diagnose_model(str(relay_policy), greedy, PLAN, exact_floor=0.1)
