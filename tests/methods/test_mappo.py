"""MAPPO: advantages and targets of a central critic."""

from __future__ import annotations

from typing import Any

import pytest

from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.methods.mappo import DecisionAdvantages, decision_advantages
from hf_credit.rollouts import Decision, Ending, Episode, LocalContext, by_episode


def test_without_discount_an_advantage_is_the_outcome_minus_the_value() -> None:
    assert decision_advantages([1.0, 0.0], [[0.25, 0.5], [0.75]], 1.0, 1.0) == [[0.75, 0.5], [-0.75]]


def test_with_lambda_0_an_advantage_is_the_change_in_value() -> None:
    (first,) = decision_advantages([1.0], [[0.25, 0.5]], 0.5, 0.0)
    assert first == pytest.approx([0.5 * 0.5 - 0.25, 1.0 - 0.5])


def test_an_episode_without_decisions_has_no_advantages() -> None:
    assert decision_advantages([1.0], [[]], 1.0, 1.0) == [[]]
    assert decision_advantages([], [], 1.0, 1.0) == []


def decision(context: int) -> Decision:
    return Decision(role="a", state=None, context_ids=(context,), action_ids=(9,), logprobs=None, action_text="")


def test_the_critic_reads_all_messages_before_a_decision_and_learns_its_return() -> None:
    talk = Episode(decisions=(decision(1), decision(2)), outcome=30.0, ending=Ending.FINISHED)
    failed = Episode(decisions=(decision(1),), outcome=0.0, ending=Ending.ERROR)
    samples = tuple(Rollout(episode=one, instance=0) for one in (failed, talk))

    def critic(inputs: Any) -> list[tuple[float, ...]]:
        return [(float(len(one.ids)),) for one in inputs]

    context = LocalContext(critics={"critic": critic})
    collected = RolloutBatch(rollouts=samples, rows=1)
    credit = DecisionAdvantages()(collected, context, None)
    # The outcome is clipped to 10; the critic says 1 of (1) and 3 of (1, 9, 2).
    assert by_episode(collected.episodes, credit.decisions) == [[None], [9.0, 7.0]]
    (lesson,) = credit.critic_targets
    assert [one.ids for one in lesson.inputs] == [(1,), (1, 9, 2)]
    assert list(lesson.targets) == [(10.0,), (10.0,)]
