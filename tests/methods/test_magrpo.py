"""MAGRPO on episodes written by hand."""

from __future__ import annotations

from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.methods.magrpo import GroupMean
from hf_credit.rollouts import Decision, Ending, Episode, LocalContext, by_episode


def episode(outcome: float, ending: Ending = Ending.FINISHED) -> Episode:
    decisions = [
        Decision(role=role, state=None, context_ids=(1,), action_ids=(2,), logprobs=None, action_text="")
        for role in ("reasoner", "actor")
    ]
    return Episode(decisions=tuple(decisions), outcome=outcome, ending=ending)


def credits(estimator: GroupMean, *episodes: Episode, instances: tuple[int, ...] = ()) -> object:
    owners = instances or (0,) * len(episodes)
    samples = tuple(Rollout(episode=one, instance=owner) for one, owner in zip(episodes, owners, strict=True))
    credit = estimator(RolloutBatch(rollouts=samples, rows=max(owners) + 1), LocalContext(), None)
    return by_episode(episodes, credit.decisions)


def test_the_group_gives_every_message_the_centred_return_of_its_episode() -> None:
    episodes = [episode(1.0), episode(0.0), episode(0.5), episode(0.9, Ending.ERROR)]
    assert credits(GroupMean(), *episodes) == [[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0], [None, None]]


def test_returns_are_clipped_before_they_are_compared() -> None:
    assert credits(GroupMean(return_clip=2.0), episode(7.0), episode(0.0)) == [[1.0, 1.0], [-1.0, -1.0]]
    assert credits(GroupMean(return_clip=2.0), episode(-7.0), episode(0.0)) == [[-1.0, -1.0], [1.0, 1.0]]


def test_each_task_is_a_group() -> None:
    episodes = [episode(1.0), episode(5.0), episode(0.0), episode(7.0)]
    assert credits(GroupMean(), *episodes, instances=(0, 1, 0, 1)) == [[0.5] * 2, [-1.0] * 2, [-0.5] * 2, [1.0] * 2]


def test_normalised_credit_is_divided_by_the_deviation_of_the_group() -> None:
    first, second = credits(GroupMean(normalise_credit=True), episode(3.0), episode(1.0))  # type: ignore[misc]
    assert [round(value, 6) for value in (*first, *second)] == [1, 1, -1, -1]
