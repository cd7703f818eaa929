"""The plan of active replay: statistics of states from earlier updates, and the number of branches at each."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Literal

import torch

from hf_credit.credit import replay_ratio
from hf_credit.rollouts import Decision

StateKey = Literal["depth", "state"]
START = "start"
"""The key of the first states of all tasks, pooled."""
LEAST_VISITS = 4
"""The minimum number of visits for branches at a state."""
KEPT_VISITS = 0.5
"""The minimum number of visits, after decay, with which a state is kept."""

Sums = tuple[float, ...]


@dataclass(frozen=True)
class Profile:
    """Statistics of a state, as decaying sums over visits."""

    visits: float = 0.0  # number of visits
    noise: Sums = ()  # variance of the gradient by depth, from the state
    tokens: Sums = ()  # generated tokens by depth, from the state
    split: float = 0.0  # number of visits with several branches
    within: float = 0.0  # variance of the returns of branches, in these visits
    error: float = 0.0  # squared error of the critic in these visits, minus the variance of the branches' mean

    def plus(self, other: Profile, kept: float = 1.0) -> Profile:
        """Returns `kept` times these sums, plus the others."""

        def added(own: Any, more: Any) -> Any:
            if isinstance(own, tuple):
                return tuple(itertools.starmap(added, itertools.zip_longest(own, more, fillvalue=0.0)))
            return kept * own + more

        return Profile(*map(added, astuple(self), astuple(other)))

    @property
    def least_mean(self) -> float:
        """m(s), the minimum over k of noise per token up to depth k: the first block of the isotonic regression."""
        sums = zip(itertools.accumulate(self.noise), itertools.accumulate(self.tokens), strict=True)
        return min((noise / tokens for noise, tokens in sums if tokens), default=0.0)

    def prefers_siblings(self, branches: int) -> bool:
        """Returns whether the mean of the other branches is a better baseline than the critic at the state."""
        return self.split >= LEAST_VISITS and self.error * (branches - 1) > self.within


@dataclass(frozen=True, kw_only=True)
class ReplayMemory:
    """Statistics of earlier updates."""

    states: tuple[tuple[Any, ...], ...] = ()  # for each state its key, followed by the fields of its `Profile`
    generated: float = 0.0  # decaying sum of the generated tokens of updates
    unbranched: float = 0.0  # the same for as many starts without branches

    @property
    def profiles(self) -> dict[str, Profile]:
        """The statistics by the key of the state."""
        return {key: Profile(*values) for key, *values in self.states}

    def plus(self, seen: Mapping[str, Profile], generated: float, unbranched: float, kept: float) -> ReplayMemory:
        """Returns the memory with an update: `kept` times the sums, plus those of the update."""
        known = self.profiles
        merged = {key: known.get(key, Profile()).plus(seen.get(key, Profile()), kept) for key in {**known, **seen}}
        return ReplayMemory(
            states=tuple((key, *astuple(one)) for key, one in merged.items() if one.visits >= KEPT_VISITS),
            generated=kept * self.generated + generated,
            unbranched=kept * self.unbranched + unbranched,
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The number of branches at a state. It depends only on the state, the path to it and earlier updates."""

    most: float  # maximum number of live branches per start
    fixed: Sequence[float] | None = None  # the number of branches at each depth, in place of a plan
    # statistics by the key of the state; empty if no gain is predicted
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    def branches(self, key: str, depth: int, alive: float) -> float:
        """Returns n(s) = max(1, min(most, N*) / N), with N* = sqrt(m(s) / m(start)).

        Args:
            depth: number of steps before the state.
            alive: N, the product of n over the path to the state.
        """
        if self.fixed is not None:
            return self.fixed[depth] if depth < len(self.fixed) else 1.0
        profile = self.profiles.get(key)
        if profile is None or depth == 0 or profile.visits < LEAST_VISITS or not profile.least_mean:
            return 1.0
        start = self.profiles[START].least_mean
        target = math.sqrt(profile.least_mean / start) if start else math.inf
        return max(1.0, min(self.most, target) / alive)

    def growth(self, tokens: Sums) -> float:
        """Returns the tokens of a start with branches, divided by those without, if states are keyed by depth.

        Args:
            tokens: tokens by depth of a start without branches.
        """
        alive, branched = 1.0, 0.0
        for depth, count in enumerate(tokens):
            alive *= self.branches(str(depth), depth, alive)
            branched += alive * count
        return branched / sum(tokens) if sum(tokens) else 1.0


def ratio_of(profile: Profile) -> float:
    """Returns rho, the `replay_ratio` of a profile."""
    return replay_ratio(
        torch.tensor(profile.noise, dtype=torch.float64), torch.tensor(profile.tokens, dtype=torch.float64)
    )


def key_of(step: Sequence[Decision], depth: int, kind: StateKey) -> str:
    """Returns the key of a state: the number of steps before it, or a hash of its context."""
    if kind == "depth":
        return str(depth) if depth else START
    contexts = repr([(one.event, one.context_ids) for one in step])
    return hashlib.blake2b(contexts.encode("utf-8", errors="surrogatepass"), digest_size=8).hexdigest()
