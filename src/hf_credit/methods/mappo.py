"""MAPPO: whole episodes, judged by a critic that reads everything said so far (a baseline of paper C3, Appendix H)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hf_credit.collectors import Group, RolloutBatch
from hf_credit.credit import generalized_advantages
from hf_credit.critics.readings import context_readings, joint_histories
from hf_credit.methods.base import Credit, CriticTargets, Method, mean_over_shared, without_errors
from hf_credit.methods.turns import pad_to_matrix
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class DecisionAdvantages:
    """Generalized advantages over decisions, with the outcome paid at the last one (paper C3, eq. 4).

    The critic learns the advantage plus what it said. Episodes that failed get no credit.

    Args:
        gamma: discount from one decision to the next, in [0, 1].
        lam: decay of the trace, in [0, 1].
        return_clip: outcomes are clipped to [-return_clip, return_clip].
    """

    gamma: float = 1.0
    lam: float = 1.0
    return_clip: float = 10.0

    def __post_init__(self) -> None:
        for name in ("gamma", "lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}; the paper's is 1.")
        if not self.return_clip > 0:
            raise ValueError(f"return_clip must be above 0, got {self.return_clip}; the paper clips to 10.")

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        episodes = [collected.episodes[row] for row in rows]
        histories = [joint_histories(episode) for episode in episodes]
        readings = context_readings([history for own in histories for history in own])
        told = context.values(readings)
        rest = (value for (value,) in told)
        values = [[next(rest) for _ in own] for own in histories]
        outcomes = [max(-self.return_clip, min(self.return_clip, episode.outcome)) for episode in episodes]
        advantages = decision_advantages(outcomes, values, self.gamma, self.lam)
        targets = [
            (advantage + value,)
            for own, known in zip(advantages, values, strict=True)
            for advantage, value in zip(own, known, strict=True)
        ]
        given: list[list[float | None]] = [[None] * len(episode.decisions) for episode in collected.episodes]
        for row, own in zip(rows, advantages, strict=True):
            given[row] = [*own]
        return Credit(
            decisions=mean_over_shared(collected, given),
            critic_targets=[CriticTargets(readings=readings, targets=targets, values=told)],
        )


def decision_advantages(
    outcomes: Sequence[float], values: Sequence[Sequence[float]], gamma: float, lam: float
) -> list[list[float]]:
    """The advantage of each decision of each episode, by `generalized_advantages` over decisions.

    Args:
        outcomes: of the episodes, paid with their last decision, in the unit of the reward.
        values: what the critic said before each decision of each episode.
        gamma, lam: as in `DecisionAdvantages`.
    """
    table, mask = pad_to_matrix(values)
    rewards, _ = pad_to_matrix(
        [[*[0.0] * (len(own) - 1), outcome][: len(own)] for own, outcome in zip(values, outcomes, strict=True)]
    )
    advantages = generalized_advantages(rewards, table, mask, gamma, lam).tolist()
    return [advantages[row][: len(own)] for row, own in enumerate(values)]


def mappo(group_size: int = 8, gamma: float = 1.0, lam: float = 1.0, return_clip: float = 10.0) -> Method:
    """The method.

    Args:
        group_size: episodes of each task row.
        gamma, lam, return_clip: as in `DecisionAdvantages`.
    """
    estimator = DecisionAdvantages(gamma=gamma, lam=lam, return_clip=return_clip)
    return Method(name="mappo", collector=Group(size=group_size), estimator=estimator, critics=("critic",))
