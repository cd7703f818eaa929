"""Exact values, advantages and gradients of a table policy, by dynamic programming over all that may happen."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_credit.bench.problem import Node, Problem, Way
from hf_credit.bench.table import TablePolicy, Vector
from hf_credit.rollouts import Decision

Micro = tuple[Node, tuple[int, ...]]
"""A node, and what those of its speakers did who are taken first where several act at once."""


class Truth:
    """What is true of a policy in a problem.

        Q(x, a) = V(x'),   V(x) = sum over a of pi(a | x) Q(x, a),   V(x) = E[r + V(x')] once all have acted

    where x is a node and the actions of those of its speakers that are taken first; V(end) = 0. Then
    grad J = sum over x of d(x) sum over a of pi(a | x) Q(x, a) grad log pi(a | x), with d(x) how likely x is passed.

    Args:
        policy: a table, with its problem.
        paid: whether r is what is paid, which critics learn of, in place of what is really achieved.
    """

    def __init__(self, policy: TablePolicy, paid: bool = False) -> None:
        self.policy, self.problem, self._paid = policy, policy.problem, paid
        self.values: dict[Micro, float] = {}
        self.action_values: dict[Micro, list[float]] = {}
        self._layout, self._rows = _layout(self.problem), policy.probabilities.tolist()
        for place in reversed([*self._layout.values()]):
            self._settle(place)
        self.start = sum(way.probability * self.values[way.node, ()] for way in self.problem.starts())
        self._advantages: dict[tuple[Node, int], Vector] = {}

    def _settle(self, one: _Place) -> None:
        values, node = self.values, one.node
        if not one.views:
            values[node, ()] = 0.0
        for actions, ways in one.joint.items():
            values[node, actions] = sum(
                way.probability * ((way.reward if self._paid else way.value) + values[way.node, ()]) for way in ways
            )
        for before in reversed(one.before):
            row = self._rows[one.views[len(before)]]
            later = [values[node, (*before, action)] for action in range(one.counts[len(before)])]
            self.action_values[node, before] = later
            values[node, before] = sum(map(operator.mul, row, later))

    @functools.cached_property
    def reached(self) -> Mapping[Micro, float]:
        """How likely each x is passed in an episode."""
        reached: dict[Micro, float] = {}
        for way in self.problem.starts():
            reached[way.node, ()] = reached.get((way.node, ()), 0.0) + way.probability
        for one in self._layout.values():
            for actions in (*one.before, *one.joint):
                share = reached.get((one.node, actions), 0.0)
                for probability, after in self._after(one.node, actions) if share else ():
                    reached[after] = reached.get(after, 0.0) + share * probability
        return reached

    def _after(self, node: Node, actions: tuple[int, ...]) -> list[tuple[float, Micro]]:
        one = self._layout[node]
        if len(actions) == len(one.views):
            return [(way.probability, (way.node, ())) for way in one.joint[actions]]
        row = self._rows[one.views[len(actions)]]
        return [(row[action], (node, (*actions, action))) for action in range(one.counts[len(actions)])]

    @functools.cached_property
    def gradient(self) -> Vector:
        """grad J in the logits, of shape (views, actions)."""
        gradient = np.zeros_like(self.policy.probabilities)
        for (node, before), later in self.action_values.items():
            share = self.reached.get((node, before), 0.0)
            if share:
                place, value = self._layout[node].views[len(before)], self.values[node, before]
                row = self._rows[place]
                for action, worth in enumerate(later):
                    gradient[place, action] += share * row[action] * (worth - value)
        return gradient

    def advantages(self, node: Node, speaker: int) -> Vector:
        """A(s, a) of each action of one of a node's speakers, those beside it left to the policy.

        Args:
            node: where it acts.
            speaker: its place among the node's speakers.
        """
        if (node, speaker) not in self._advantages:
            total: Any = 0.0
            share_of: dict[tuple[int, ...], float] = {(): 1.0}
            for known in range(speaker):
                row = self.policy.of(self.problem.view(node, self.problem.speakers(node)[known]))
                share_of = {
                    (*before, action): share * float(one)
                    for before, share in share_of.items()
                    for action, one in enumerate(row)
                }
            for before, share in share_of.items():
                total = total + share * np.array(self.action_values[node, before])
            self._advantages[node, speaker] = total - self.values[node, ()]
        return self._advantages[node, speaker]

    def place_of(self, decision: Decision) -> tuple[Node, int, int]:
        """The node of a decision, its speaker's place among the node's, and the action."""
        node = getattr(decision.state, "inner", decision.state).node  # a rule that cuts wraps states
        return node, list(self.problem.speakers(node)).index(decision.role), int(decision.action_text)

    def value_read(self, ids: tuple[int, ...]) -> float:
        """What a critic should say that has read these tokens: the mean of V over all that may be so.

        Views and actions are taken in their order; what was not read in between is left to the policy. One view by
        itself is any visit to it.

        Args:
            ids: of `TableChat`.
        """
        return self._read(ids)[1]

    @functools.cache  # noqa: B019 - as long as the policy
    def _read(self, ids: tuple[int, ...]) -> tuple[Mapping[Micro, float], float]:
        """What may be so, and the mean of V over it."""
        beliefs = self._read(ids[:-1])[0] if ids else self.reached
        if ids and ids[-1] < len(self._rows):
            met = self._until_view(beliefs, ids[-1]) if len(ids) > 1 else beliefs
            beliefs = {one: share for one, share in met.items() if self._place(one) == ids[-1]} or beliefs
        elif ids:
            action = ids[-1] - len(self._rows)
            beliefs = {(node, (*before, action)): share for (node, before), share in beliefs.items()}
        weight = sum(beliefs.values())
        return beliefs, sum(share * self.values[one] for one, share in beliefs.items()) / weight if weight else 0.0

    def _until_view(self, beliefs: Mapping[Micro, float], token: int) -> dict[Micro, float]:
        """What may be so when a view is met next."""
        met: dict[Micro, float] = {}
        while beliefs:
            later: dict[Micro, float] = {}
            for one, share in beliefs.items():
                if self._place(one) == token:
                    met[one] = met.get(one, 0.0) + share
                elif self.problem.speakers(one[0]):
                    for probability, after in self._after(*one):
                        later[after] = later.get(after, 0.0) + share * probability
            beliefs = later
        return met

    def _place(self, one: Micro) -> int | None:
        node, before = one
        views = self._layout[node].views
        return views[len(before)] if len(before) < len(views) else None


@dataclass(frozen=True)
class _Place:
    """A node, laid out once for all policies.

    Attributes:
        node: itself.
        views: the place of what each speaker sees among the problem's views.
        counts: how many actions each has.
        before: what those may have done who are taken before another, the shortest first.
        joint: what may come of the actions of all; empty where it is over.
    """

    node: Node
    views: tuple[int, ...]
    counts: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    joint: Mapping[tuple[int, ...], Sequence[Way]]


@functools.lru_cache(maxsize=64)
def _layout(problem: Problem) -> Mapping[Node, _Place]:
    """All nodes, each before those it leads to."""
    places = {view: place for place, view in enumerate(problem.views)}
    laid = {}
    for node in problem.nodes:
        seen = [problem.view(node, role) for role in problem.speakers(node)]
        joint = {actions: tuple(problem.ways(node, actions)) for actions in problem.joint_actions(node)}
        before = dict.fromkeys(actions[:known] for known in range(len(seen)) for actions in joint)
        views, counts = (places[view] for view in seen), (problem.actions(view) for view in seen)
        laid[node] = _Place(node, tuple(views), tuple(counts), tuple(before), joint)
    return {node: laid[node] for node in _in_order(laid)}


def _in_order(laid: Mapping[Node, _Place]) -> Iterator[Node]:
    leads = {node: {way.node for ways in one.joint.values() for way in ways} for node, one in laid.items()}
    waiting = dict.fromkeys(laid, 0)
    for later in leads.values():
        for node in later:
            waiting[node] += 1
    ready, done = [node for node, count in waiting.items() if not count], 0
    while ready:
        node = ready.pop()
        done += 1
        yield node
        for after in leads[node]:
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    if done < len(laid):
        circle = next(node for node, count in waiting.items() if count)
        raise ValueError(f"nodes of a problem must never return, got {circle!r} in a circle; count steps in them.")


def solved(policy: TablePolicy, share: float, tolerance: float = 1e-4) -> TablePolicy:
    """The policy on its way up, or down, by natural gradient steps, where its J has come so far.

    A logit moves by its advantage, summed over the visits to its view (Kakade 2002), so the way depends on no step
    size. Up the share is of what there is to gain, down of what there is to lose.

    Args:
        policy: where it starts.
        share: how far, in (0, 1), or in (-1, 0) down.
        tolerance: of the share.
    """
    start = Truth(policy).start
    end = Truth(_climbed(policy, 400, np.sign(share))).start
    target = start + abs(share) * (end - start)
    step, sign = 1.0, float(np.sign(share))
    while abs(end - start) > 1e-12:
        truth = Truth(policy)
        if abs(truth.start - target) <= tolerance * abs(end - start):
            break
        ahead = policy.moved(sign * step * natural_direction(truth))
        if sign * (Truth(ahead).start - target) <= tolerance * abs(end - start):
            policy = ahead
        else:
            step /= 2
    return policy


def best(policy: TablePolicy) -> float:
    """J at the end of the natural gradient's way up, which is the most that is to be had on it."""
    return Truth(_climbed(policy, 400, 1.0)).start


def _climbed(policy: TablePolicy, steps: int, sign: float) -> TablePolicy:
    reached = -math.inf
    for _ in range(steps):
        truth = Truth(policy)
        if sign * truth.start <= reached + 1e-7:
            break
        reached = sign * truth.start
        policy = policy.moved(sign * natural_direction(truth))
    return policy


def natural_direction(truth: Truth) -> Vector:
    """The direction in which a logit moves by its advantage, the longest by 1."""
    shares = np.maximum(truth.policy.probabilities, 1e-12)
    direction = np.where(np.isfinite(truth.policy.logits), truth.gradient / shares, 0.0)
    longest = np.abs(direction).max()
    return direction / longest if longest else direction
