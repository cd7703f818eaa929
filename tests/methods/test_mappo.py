"""MAPPO: advantages and targets of a central critic."""

from __future__ import annotations

from typing import Any

from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.methods.mappo import DecisionAdvantages
from hf_credit.rollouts import Decision, Ending, Episode, LocalContext, by_episode


def decision(context: int) -> Decision:
    return Decision(role="a", state=None, context_ids=(context,), action_ids=(9,), logprobs=None, action_text="")


def critic(inputs: Any) -> list[tuple[float, ...]]:
    return [(float(len(one.ids)),) for one in inputs]


def test_with_lambda_0_an_advantage_is_the_change_in_value() -> None:
    talk = Episode(decisions=(decision(1), decision(2)), outcome=5.0, ending=Ending.FINISHED)
    silent = Episode(decisions=(), outcome=1.0, ending=Ending.FINISHED)
    collected = RolloutBatch(rollouts=tuple(Rollout(episode=one, instance=0) for one in (talk, silent)), rows=1)
    estimator = DecisionAdvantages(gamma=0.5, lam=0.0)
    credit = estimator(collected, LocalContext(critics={"critic": critic}), None)
    # The critic says 1 of (1) and 3 of (1, 9, 2).
    assert by_episode(collected.episodes, credit.decisions) == [[0.5 * 3 - 1, 5.0 - 3], []]


def test_the_critic_reads_all_messages_before_a_decision_and_learns_its_return() -> None:
    talk = Episode(decisions=(decision(1), decision(2)), outcome=30.0, ending=Ending.FINISHED)
    failed = Episode(decisions=(decision(1),), outcome=0.0, ending=Ending.ERROR)
    samples = tuple(Rollout(episode=one, instance=0) for one in (failed, talk))

    context = LocalContext(critics={"critic": critic})
    collected = RolloutBatch(rollouts=samples, rows=1)
    credit = DecisionAdvantages()(collected, context, None)
    # The outcome is clipped to 10; the critic says 1 of (1) and 3 of (1, 9, 2).
    assert by_episode(collected.episodes, credit.decisions) == [[None], [9.0, 7.0]]
    (lesson,) = credit.critic_targets
    assert [one.ids for one in lesson.inputs] == [(1,), (1, 9, 2)]
    assert list(lesson.targets) == [(10.0,), (10.0,)]


def test_a_very_low_outcome_is_clipped_too() -> None:
    talk = Episode(decisions=(decision(1), decision(2)), outcome=-30.0, ending=Ending.FINISHED)
    collected = RolloutBatch(rollouts=(Rollout(episode=talk, instance=0),), rows=1)
    credit = DecisionAdvantages()(collected, LocalContext(critics={"critic": critic}), None)
    assert by_episode(collected.episodes, credit.decisions) == [[-10.0 - 1, -10.0 - 3]]
