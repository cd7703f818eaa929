"""The possible gain of replays for a policy, estimated from episodes without replays."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from hf_credit.critics.inputs import policy_inputs
from hf_credit.diagnostics.policy import Critic, Subject
from hf_credit.diagnostics.replays import ReplayGain, replay_gain
from hf_credit.methods.groups import step_rewards
from hf_credit.rollouts import Decision, Ending, Episode, Ledger, RolloutRequest, refuse_total_failure
from hf_credit.rollouts.method_context import Logprobs

_MIN_EPISODES = 4
"""The number of other episodes at a context from which the mean of their returns is its value."""
_MIN_EXPLAINED = 0.2
"""The explained share of the variance of returns below which rho is only a bound."""
_OWN_READING = ("ppo", "active_replay")
"""Methods with a critic that reads the context of the decision."""


@dataclass(frozen=True, kw_only=True)
class ReplayDiagnosis:
    """The possible gain of replays for one policy.

    Attributes:
        gain: the maximum gain, and where to branch.
        critic: the source of the values, `"critic"` or `"means"`.
        explained: the share of the variance of returns that the values explain, at most 1; NaN for equal returns.
    """

    name: str
    gain: ReplayGain
    critic: str
    explained: float
    cost: Ledger = field(default_factory=Ledger)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def warning(self) -> str:
        """Why rho may not be reliable, in one sentence; empty if it is."""
        if self.explained >= _MIN_EXPLAINED:
            return ""
        if math.isnan(self.explained):
            return (
                f"{self.name}: all returns are equal, so rho cannot be estimated; choose tasks that are sometimes "
                "solved and sometimes not."
            )
        return (
            f"{self.name}: the values explain only {self.explained:.2g} of the variance of returns, so rho is a lower "
            "bound: replays may gain less or nothing; train a critic first."
        )


def diagnose_replays(
    subject: Subject, starts: Sequence[RolloutRequest[Any]], *, most: float = 2.0, seed: int = 0
) -> ReplayDiagnosis:
    """Plays each task once and estimates the possible gain of replays.

    Args:
        subject: the policy; its critic provides the values if it was trained by `ppo` or `active_replay`.
        most, seed: as in `replay_gain`.

    Raises:
        ValueError: fewer than two episodes ended without an error.
    """
    episodes = subject.engine.run(starts)
    refuse_total_failure(episodes)
    trained = None if subject.trained is None else subject.trained.name
    critic = subject.critics.get("critic") if trained in _OWN_READING else None
    gain, explained = episodes_gain(episodes, critic, subject.logprobs, most=most, seed=seed)
    return ReplayDiagnosis(
        name=subject.name,
        gain=gain,
        critic="means" if critic is None else "critic",
        explained=explained,
        cost=Ledger.of(episodes),
        about={**subject.about, "most": most},
    )


def episodes_gain(
    episodes: Sequence[Episode], critic: Critic | None = None, logprobs: Logprobs | None = None, **measured: Any
) -> tuple[ReplayGain, float]:
    """Computes `replay_gain` of episodes, and the share of the variance of their returns that the values explain.

    Without a critic, the value before a step is the mean return of the other episodes at the same context if there are
    at least four, otherwise of those with as many steps. Such a mean does not notice an early decision that determines
    a later reward, so noise seems to arise late, and rho is only a lower bound.

    Args:
        episodes: of one policy, played from the start; those that failed are omitted.
        critic: predicts values at positions of a role's contexts, as in training.
        logprobs: computes log-probabilities of tokens under the policy; by default those of the sampler.
        **measured: as in `replay_gain`.

    Raises:
        ValueError: fewer than two episodes ended without an error, or log-probabilities are missing.
    """
    sound = [one for one in episodes if one.ending != Ending.ERROR]
    walks = [[step for step in one.steps if not all(two.observed for two in step)] for one in sound]
    rewards = [_paid(one) for one in sound]
    returns = [list(itertools.accumulate(reversed(own)))[::-1] for own in rewards]
    values = _means(walks, returns) if critic is None else _predicted(sound, walks, critic)
    deltas = [
        [reward + after - value for reward, value, after in zip(paid, own, [*own[1:], 0.0], strict=True)]
        for paid, own in zip(rewards, values, strict=True)
    ]
    trained = [[[one for one in step if not one.observed] for step in walk] for walk in walks]
    decisions = [one for walk in trained for step in walk for one in step]
    known = [one.logprobs for one in decisions] if logprobs is None else list(logprobs(decisions))
    if any(one is None for one in known):
        raise ValueError(
            "the gain of replays needs the log-probabilities of all replies, got none for some; sample with them, or "
            "pass logprobs."
        )
    rest = iter(known)
    spreads = [
        [sum(max(-math.expm1(token), 0.0) for _ in step for token in next(rest) or ()) for step in walk]
        for walk in trained
    ]
    tokens = [[float(sum(len(one.action_ids) for one in step)) for step in walk] for walk in trained]
    return replay_gain(deltas, spreads, tokens, **measured), _explained(values, returns)


def _paid(episode: Episode) -> list[float]:
    """Returns the reward of each step of trained roles, with the rewards until their next step."""
    paid: list[float] = []
    for step, reward in zip(episode.steps, step_rewards(episode), strict=True):
        if not all(one.observed for one in step):
            paid.append(reward)
        elif paid:
            paid[-1] += reward
    return paid


def _predicted(
    episodes: Sequence[Episode], walks: Sequence[Sequence[Sequence[Decision]]], critic: Critic
) -> list[list[float]]:
    """Returns the critic's value before each step."""
    inputs = [policy_inputs(one, tokens=False) for one in episodes]
    predictions = iter(critic([text for texts, _ in inputs for text in texts]))
    found = []
    for episode, walk, (texts, places) in zip(episodes, walks, inputs, strict=True):
        own = [next(predictions) for _ in texts]
        values = {
            one.id: [own[a][b] for a, b in at] for one, at in zip(episode.decisions, places.of_decisions, strict=True)
        }
        found.append([fmean(value for one in step for value in values[one.id]) for step in walk])
    return found


def _means(walks: Sequence[Sequence[Sequence[Decision]]], returns: Sequence[Sequence[float]]) -> list[list[float]]:
    """Returns the mean return of other episodes before each step."""
    seen: dict[Hashable, list[float]] = defaultdict(list)

    def keys(step: Sequence[Decision], depth: int) -> tuple[Hashable, Hashable]:
        return depth, (depth, tuple((one.event, one.context_ids) for one in step))

    for walk, own in zip(walks, returns, strict=True):
        for depth, (step, later) in enumerate(zip(walk, own, strict=True)):
            for key in keys(step, depth):
                seen[key].append(later)
    sums = {key: (sum(own), len(own)) for key, own in seen.items()}

    def value(step: Sequence[Decision], depth: int, own: float) -> float:
        at_depth, at_context = (sums[key] for key in keys(step, depth))
        total, count = at_context if at_context[1] > _MIN_EPISODES else at_depth
        return (total - own) / (count - 1) if count > 1 else 0.0

    return [
        [value(step, depth, own) for depth, (step, own) in enumerate(zip(walk, values, strict=True))]
        for walk, values in zip(walks, returns, strict=True)
    ]


def _explained(values: Sequence[Sequence[float]], returns: Sequence[Sequence[float]]) -> float:
    predictions, targets = (np.array([*itertools.chain(*rows)]) for rows in (values, returns))
    spread = targets.var() if len(targets) else 0.0
    return float(1 - np.mean((predictions - targets) ** 2) / spread) if spread else math.nan
