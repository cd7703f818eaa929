"""The critic as a judge of decisions: what each was better than expected, given all that was said (MAPPO)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_credit.credit import generalized_advantages
from hf_credit.rollouts import Episode
from hf_credit.rollouts.buckets import Alternative
from hf_credit.rollouts.episode import Ending
from hf_credit.trainers.critic import Critic


def joint_histories(episode: Episode) -> list[tuple[int, ...]]:
    """What a central critic reads before each decision: everything that any role was given or said until then.

    A context that continues what came before is not repeated.

    Args:
        episode: whose decisions are judged.
    """
    histories = []
    said: tuple[int, ...] = ()
    for decision in episode.decisions:
        context = decision.context_ids
        said = context if context[: len(said)] == said else said + context
        histories.append(said)
        said += decision.action_ids
    return histories


def decision_advantages(
    outcomes: Sequence[float], values: Sequence[Sequence[float]], gamma: float, lam: float
) -> list[list[float]]:
    """The advantage of each decision of each episode, by `generalized_advantages` over decisions.

    The outcome is paid with the last decision (paper C3, eq. 4 under terminal-only supervision).

    Args:
        outcomes: of the episodes, in the unit of the reward.
        values: what the critic said before each decision of each episode.
        gamma: discount from one decision to the next, in [0, 1].
        lam: trace decay, in [0, 1].
    """
    width = max([len(own) for own in values] + [1])
    table, rewards = torch.zeros(len(values), width, dtype=torch.float64), torch.zeros(len(values), width).double()
    mask = torch.zeros(len(values), width, dtype=torch.bool)
    for row, own in enumerate(values):
        table[row, : len(own)] = torch.tensor(own, dtype=torch.float64)
        mask[row, : len(own)] = True
        if own:
            rewards[row, len(own) - 1] = outcomes[row]
    advantages = generalized_advantages(rewards, table, mask, gamma, lam).tolist()
    return [advantages[row][: len(own)] for row, own in enumerate(values)]


class CentralCritic:
    """Credits decisions with a critic, and teaches it afterwards.

    Args:
        critic: the value head.
        gamma, lam: as in `decision_advantages`; the paper's are 1.
        max_tokens: the critic reads this many of the last tokens at most.
    """

    def __init__(self, critic: Critic, gamma: float, lam: float, max_tokens: int | None = None) -> None:
        self.critic = critic
        self.gamma = gamma
        self.lam = lam
        self.max_tokens = max_tokens

    def credit(
        self, episodes: Sequence[Episode], outcomes: Sequence[float]
    ) -> tuple[list[list[float | None]], dict[str, float]]:
        """The advantage of each decision, `None` in failed episodes, and what came of teaching the critic.

        Every process must call it at the same time, also one without episodes.

        Args:
            episodes: of this process.
            outcomes: of each, in the unit of the reward.
        """
        sound = [row for row, episode in enumerate(episodes) if episode.ending != Ending.ERROR]
        histories = [[self._read(history) for history in joint_histories(episodes[row])] for row in sound]
        contexts = [history for own in histories for history in own]
        old = self.critic.context_values(contexts) if contexts else torch.zeros(0)
        remaining = iter(old.tolist())
        values = [[next(remaining) for _ in own] for own in histories]
        advantages = decision_advantages([outcomes[row] for row in sound], values, self.gamma, self.lam)
        targets = [
            advantage + value
            for own, known in zip(advantages, values, strict=True)
            for advantage, value in zip(own, known, strict=True)
        ]
        metrics = self.critic.fit_contexts(contexts, _tensor(targets, old), old)
        by_row = dict(zip(sound, advantages, strict=True))
        credits: list[list[float | None]] = [
            [*by_row[row]] if row in by_row else [None] * len(episode.decisions)
            for row, episode in enumerate(episodes)
        ]
        return credits, metrics

    def values(self, episodes: Sequence[Episode]) -> list[list[float]]:
        """What the critic expects before each decision of each episode, in the unit of the reward."""
        histories = [[self._read(history) for history in joint_histories(episode)] for episode in episodes]
        contexts = [history for own in histories for history in own]
        found = iter(self.critic.context_values(contexts).tolist() if contexts else [])
        return [[next(found) for _ in own] for own in histories]

    def message_values(
        self, episodes: Sequence[Episode], compared: Sequence[Alternative], returns: Sequence[float]
    ) -> tuple[list[float], dict[str, float]]:
        """What the critic expects of each message, having read it, and what came of teaching it the returns.

        Every process must call it at the same time, also one without messages.

        Args:
            episodes: of this process.
            compared: messages of these episodes.
            returns: of each message, in the unit of the reward.
        """
        read = []
        for alternative in compared:
            row, turn = alternative.place
            read.append(self._read(joint_histories(episodes[row])[turn] + alternative.decision.action_ids))
        old = self.critic.context_values(read) if read else torch.zeros(0)
        metrics = self.critic.fit_contexts(read, _tensor(returns, old), old)
        return old.tolist(), metrics

    def _read(self, history: tuple[int, ...]) -> tuple[int, ...]:
        return history if self.max_tokens is None else history[-self.max_tokens :]


def _tensor(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float32, device=like.device)
