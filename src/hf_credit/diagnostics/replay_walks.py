"""What replays could gain for a policy: plays episodes without any replay, and reads where noise arises."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from hf_credit.critics.readings import own_readings
from hf_credit.diagnostics.policy import Critic, Subject
from hf_credit.diagnostics.replays import ReplayGain, replay_gain
from hf_credit.methods.turns import step_rewards
from hf_credit.rollouts import Decision, Ending, Episode, Ledger, RolloutRequest, refuse_total_failure
from hf_credit.rollouts.method_context import Logprobs

LEAST = 4
"""So many other episodes must have come to a context for the mean of their returns to be its value."""
LITTLE = 0.2
"""Values that explain less of the variance of returns than this make rho a bound and no prediction."""
OWN_READING = ("ppo", "active_replay")
"""Methods whose critic reads what the speaker reads."""


@dataclass(frozen=True, kw_only=True)
class ReplayDiagnosis:
    """What replays could gain for one policy.

    Attributes:
        name: of the policy.
        gain: at best, and where.
        critic: `"critic"` where one was asked, else `"means"`.
        explained: the share of the variance of returns that the values explain, at most 1; NaN where all are alike.
        cost: of the episodes.
        about: plain values for the reader.
    """

    name: str
    gain: ReplayGain
    critic: str
    explained: float
    cost: Ledger = field(default_factory=Ledger)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def warning(self) -> str:
        """What to know before rho is believed; empty where there is nothing."""
        if self.explained >= LITTLE:
            return ""
        if math.isnan(self.explained):
            return (
                f"{self.name}: all returns are alike, so nothing is known of where noise arises; take tasks that are "
                "solved now and then."
            )
        return (
            f"{self.name}: the values explain {self.explained:.2g} of the variance of returns, so rho is no "
            "prediction: replays can hardly gain more, and may gain nothing; teach a critic first."
        )


def diagnose_replays(
    subject: Subject, starts: Sequence[RolloutRequest[Any]], *, most: float = 2.0, seed: int = 0
) -> ReplayDiagnosis:
    """Plays each task once, and says what replays could gain.

    Args:
        subject: the policy; its critic gives values where `ppo` or `active_replay` taught it.
        starts: the tasks.
        most, seed: as for `replay_gain`.

    Raises:
        ValueError: fewer than two episodes came to an end.
    """
    episodes = subject.engine.run(starts)
    refuse_total_failure(episodes)
    trained = None if subject.trained is None else subject.trained.name
    critic = subject.critics.get("critic") if trained in OWN_READING else None
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
    episodes: Sequence[Episode],
    critic: Critic | None = None,
    logprobs: Logprobs | None = None,
    **measured: Any,
) -> tuple[ReplayGain, float]:
    """`replay_gain` of episodes that were played from the start, and how much of their returns the values explain.

    Without a critic the value before a step is the mean return of the other episodes that came to the same context,
    where there are four, else of those that came to a step as late. By steps alone, one cannot know what an early
    decision settled before the reward tells, so that all noise seems to arise late: read rho as a bound then.

    Args:
        episodes: of one policy; those that failed are left out.
        critic: says values at places of what a speaker reads, as in training.
        logprobs: of tokens under the policy; what the sampler reported if `None`.
        **measured: as for `replay_gain`.

    Raises:
        ValueError: fewer than two came to an end, or nobody knows the log-probabilities.
    """
    sound = [one for one in episodes if one.ending != Ending.ERROR]
    walks = [[step for step in one.steps if not all(two.observed for two in step)] for one in sound]
    rewards = [_paid(one) for one in sound]
    returns = [list(itertools.accumulate(reversed(own)))[::-1] for own in rewards]
    values = _means(walks, returns) if critic is None else _said(sound, walks, critic)
    deltas = [
        [reward + after - value for reward, value, after in zip(paid, own, [*own[1:], 0.0], strict=True)]
        for paid, own in zip(rewards, values, strict=True)
    ]
    decisions = [one for walk in walks for step in walk for one in step if not one.observed]
    known = [one.logprobs for one in decisions] if logprobs is None else list(logprobs(decisions))
    if any(one is None for one in known):
        raise ValueError(
            "the spread of a policy needs the log-probabilities of what it said, got none for some; sample with them, "
            "or pass logprobs."
        )
    rest = iter(known)
    spreads = [
        [
            sum(max(-math.expm1(token), 0.0) for one in step if not one.observed for token in next(rest) or ())
            for step in walk
        ]
        for walk in walks
    ]
    tokens = [[float(sum(len(one.action_ids) for one in step if not one.observed)) for step in walk] for walk in walks]
    return replay_gain(deltas, spreads, tokens, **measured), _explained(values, returns)


def _paid(episode: Episode) -> list[float]:
    """The reward of each step of those who learn, with what is paid until the next; what comes before is nobody's."""
    paid: list[float] = []
    for step, reward in zip(episode.steps, step_rewards(episode), strict=True):
        if not all(one.observed for one in step):
            paid.append(reward)
        elif paid:
            paid[-1] += reward
    return paid


def _said(
    episodes: Sequence[Episode], walks: Sequence[Sequence[Sequence[Decision]]], critic: Critic
) -> list[list[float]]:
    read = [own_readings(one, tokens=False) for one in episodes]
    predicted = iter(critic([reading for readings, _ in read for reading in readings]))
    found = []
    for episode, walk, (readings, places) in zip(episodes, walks, read, strict=True):
        said = [next(predicted) for _ in readings]
        of = {
            one.id: [said[a][b] for a, b in at] for one, at in zip(episode.decisions, places.of_decisions, strict=True)
        }
        found.append([fmean(value for one in step for value in of[one.id]) for step in walk])
    return found


def _means(walks: Sequence[Sequence[Sequence[Decision]]], returns: Sequence[Sequence[float]]) -> list[list[float]]:
    seen: dict[Hashable, list[float]] = defaultdict(list)

    def keys(step: Sequence[Decision], depth: int) -> tuple[Hashable, Hashable]:
        return depth, (depth, tuple((one.event, one.context_ids) for one in step))

    for walk, own in zip(walks, returns, strict=True):
        for depth, (step, came) in enumerate(zip(walk, own, strict=True)):
            for key in keys(step, depth):
                seen[key].append(came)
    sums = {key: (sum(own), len(own)) for key, own in seen.items()}

    def value(step: Sequence[Decision], depth: int, own: float) -> float:
        late, here = (sums[key] for key in keys(step, depth))
        total, count = here if here[1] > LEAST else late
        return (total - own) / (count - 1) if count > 1 else 0.0

    return [
        [value(step, depth, own) for depth, (step, own) in enumerate(zip(walk, values, strict=True))]
        for walk, values in zip(walks, returns, strict=True)
    ]


def _explained(values: Sequence[Sequence[float]], returns: Sequence[Sequence[float]]) -> float:
    said, came = ([one for own in rows for one in own] for rows in (values, returns))
    mean = fmean(came) if came else 0.0
    spread = sum((one - mean) ** 2 for one in came)
    return 1 - sum((a - b) ** 2 for a, b in zip(said, came, strict=True)) / spread if spread else math.nan
