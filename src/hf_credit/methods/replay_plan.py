"""Where active replay branches: statistics of each state from earlier updates, and its number of branches."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from hf_credit.credit import replay_ratio
from hf_credit.rollouts import Decision

StateKey = Literal["depth", "state"]
START = "start"
"""The key of the first states of all tasks together."""
LEAST_VISITS = 4
"""With fewer visits nothing is planned at a state."""
KEPT_VISITS = 0.5
"""A state is dropped if decay leaves fewer visits."""

Sums = tuple[float, ...]


@dataclass(frozen=True)
class Profile:
    """Statistics of a state, as decaying sums over visits.

    Attributes:
        visits: how many.
        noise: by depth from the state on, the variance that arises there.
        tokens: by depth from the state on, those generated there.
        split: visits with several branches.
        within: of these, the variance of the returns of branches.
        error: of these, the squared error of the critic, without what that variance explains.
    """

    visits: float = 0.0
    noise: Sums = ()
    tokens: Sums = ()
    split: float = 0.0
    within: float = 0.0
    error: float = 0.0

    def plus(self, other: Profile, kept: float = 1.0) -> Profile:
        """The sums of both, after a decay of this one."""

        def added(own: Sums, more: Sums) -> Sums:
            return tuple(kept * a + b for a, b in itertools.zip_longest(own, more, fillvalue=0.0))

        return Profile(
            kept * self.visits + other.visits,
            added(self.noise, other.noise),
            added(self.tokens, other.tokens),
            kept * self.split + other.split,
            kept * self.within + other.within,
            kept * self.error + other.error,
        )

    @property
    def least_mean(self) -> float:
        """m(s), the least over k of the mean of noise over that of tokens, from the state to depth k: the first block
        of their isotonic regression."""
        sums = zip(itertools.accumulate(self.noise), itertools.accumulate(self.tokens), strict=True)
        return min((b / c for b, c in sums if c), default=0.0)

    def prefers_siblings(self, branches: int) -> bool:
        """Whether the mean of the other branches is a better baseline than the critic here."""
        return self.split >= LEAST_VISITS and self.error * (branches - 1) > self.within


@dataclass(frozen=True, kw_only=True)
class ReplayMemory:
    """Statistics of earlier updates.

    Attributes:
        states: the key of a state, followed by the fields of its `Profile`.
        generated: tokens of an update.
        unbranched: those of as many starts without branches, which gives the cost of branches if states are keyed by
            their context.
    """

    states: tuple[tuple[Any, ...], ...] = ()
    generated: float = 0.0
    unbranched: float = 0.0

    @property
    def profiles(self) -> dict[str, Profile]:
        """By the key of the state."""
        return {key: Profile(*values) for key, *values in self.states}

    def plus(self, seen: Mapping[str, Profile], generated: float, unbranched: float, kept: float) -> ReplayMemory:
        """The decayed sums plus those of an update."""
        known = self.profiles
        merged = {key: known.get(key, Profile()).plus(seen.get(key, Profile()), kept) for key in {**known, **seen}}
        states = tuple(
            (key, one.visits, one.noise, one.tokens, one.split, one.within, one.error)
            for key, one in merged.items()
            if one.visits >= KEPT_VISITS
        )
        return ReplayMemory(
            states=states,
            generated=kept * self.generated + generated,
            unbranched=kept * self.unbranched + unbranched,
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The number of branches of a state. A function of only the state, the path and earlier updates.

    Attributes:
        most: maximum number of live branches per start, with a plan.
        fixed: fixed numbers at each depth in place of a plan.
        profiles: by the key of a state; empty without a possible gain.
    """

    most: float
    fixed: Sequence[float] | None = None
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    def branches(self, key: str, depth: int, alive: float) -> float:
        """n(s), at least 1: max(1, N* / N), with N* = sqrt(m(s) / m(start)).

        Args:
            key: of the state.
            depth: number of steps before it.
            alive: N, the product of n over the path to it.
        """
        if self.fixed is not None:
            return self.fixed[depth] if depth < len(self.fixed) else 1.0
        known = self.profiles.get(key)
        if known is None or depth == 0 or known.visits < LEAST_VISITS or not known.least_mean:
            return 1.0
        start = self.profiles[START].least_mean
        wanted = math.sqrt(known.least_mean / start) if start else math.inf
        return max(1.0, min(self.most, wanted) / alive)

    def growth(self, tokens: Sums) -> float:
        """The tokens of a start divided by those without branches, if states are keyed by depth.

        Args:
            tokens: by depth, of a start without branches.
        """
        alive, whole = 1.0, 0.0
        for depth, count in enumerate(tokens):
            alive *= self.branches(str(depth), depth, alive)
            whole += alive * count
        return whole / sum(tokens) if sum(tokens) else 1.0


def ratio_of(profile: Profile) -> float:
    """rho, the cost of signal with the best branching divided by that without, from a profile."""
    return replay_ratio(
        torch.tensor(profile.noise, dtype=torch.float64), torch.tensor(profile.tokens, dtype=torch.float64)
    )


def key_of(step: Sequence[Decision], depth: int, kind: StateKey) -> str:
    """The key of a state: the number of steps before it, or its context."""
    if kind == "depth":
        return str(depth) if depth else START
    read = repr([(one.event, one.context_ids) for one in step])
    return hashlib.blake2b(read.encode("utf-8", errors="surrogatepass"), digest_size=8).hexdigest()
