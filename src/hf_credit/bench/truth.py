"""Exact values, advantages and gradients of a table policy, by dynamic programming over all that may happen."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hf_credit.bench.problem import Node, Problem
from hf_credit.bench.table import TablePolicy, Vector

Micro = tuple[Node, tuple[int, ...]]
"""A node, and what those of its speakers did who are taken first where several act at once."""


class Truth:
    """What is true of a policy in a problem.

        Q(x, a) = V(x'),   V(x) = sum over a of pi(a | x) Q(x, a),   V(x) = E[r + V(x')] once all have acted

    where x is a node and the actions of those of its speakers that are taken first; V(end) = 0. Then
    grad J = sum over x of d(x) sum over a of pi(a | x) Q(x, a) grad log pi(a | x), with d(x) how likely x is passed.

    Args:
        policy: a table, with its problem.
    """

    def __init__(self, policy: TablePolicy) -> None:
        self.policy, self.problem = policy, policy.problem
        self.values: dict[Micro, float] = {}
        self.action_values: dict[Micro, list[float]] = {}
        for node in reversed(_in_order(self.problem)):
            self._settle(node)
        self.start = sum(way.probability * self.values[way.node, ()] for way in self.problem.starts())
        self._reached: dict[Micro, float] = {}
        self._advantages: dict[tuple[Node, int], Vector] = {}

    def _settle(self, node: Node) -> None:
        speakers = self.problem.speakers(node)
        rows = [self.policy.of(self.problem.view(node, role)) for role in speakers]
        values = self.values
        if not speakers:
            values[node, ()] = 0.0
        for actions in self.problem.joint_actions(node):
            values[node, actions] = sum(
                way.probability * (way.reward + values[way.node, ()]) for way in self.problem.ways(node, actions)
            )
        for known in range(len(speakers) - 1, -1, -1):
            row = rows[known]
            for before in {actions[:known] for actions in self.problem.joint_actions(node)}:
                later = [values[node, (*before, action)] for action in range(len(row))]
                self.action_values[node, before] = later
                values[node, before] = float(row @ np.array(later))

    @property
    def reached(self) -> Mapping[Micro, float]:
        """How likely each x is passed in an episode."""
        if not self._reached:
            reached: dict[Micro, float] = {}
            for way in self.problem.starts():
                reached[way.node, ()] = reached.get((way.node, ()), 0.0) + way.probability
            for node in _in_order(self.problem):
                for actions in self._microsteps(node):
                    share = reached.get((node, actions), 0.0)
                    for probability, after in self._after(node, actions) if share else ():
                        reached[after] = reached.get(after, 0.0) + share * probability
            self._reached = reached
        return self._reached

    def _microsteps(self, node: Node) -> list[tuple[int, ...]]:
        joint = self.problem.joint_actions(node)
        every = dict.fromkeys(
            actions[:known] for known in range(len(joint[0]) + 1 if joint else 0) for actions in joint
        )
        return list(every)

    def _after(self, node: Node, actions: tuple[int, ...]) -> list[tuple[float, Micro]]:
        speakers = self.problem.speakers(node)
        if len(actions) == len(speakers):
            return [(way.probability, (way.node, ())) for way in self.problem.ways(node, actions)]
        row = self.policy.of(self.problem.view(node, speakers[len(actions)]))
        return [(float(share), (node, (*actions, action))) for action, share in enumerate(row)]

    @functools.cached_property
    def gradient(self) -> Vector:
        """grad J in the logits, of shape (views, actions)."""
        gradient = np.zeros_like(self.policy.probabilities)
        for (node, before), later in self.action_values.items():
            share = self.reached.get((node, before), 0.0)
            if share:
                view = self.problem.view(node, self.problem.speakers(node)[len(before)])
                place, row = self.policy.places[view], self.policy.of(view)
                values = np.array(later)
                gradient[place, : len(row)] += share * row * (values - row @ values)
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

    @functools.cache  # noqa: B019 - as long as the policy
    def value_read(self, ids: tuple[int, ...]) -> float:
        """What a critic should say that has read these tokens: the mean of V over all that may be so.

        Views and actions are taken in their order; what was not read in between is left to the policy. One view by
        itself is any visit to it.

        Args:
            ids: of `TableChat`.
        """
        first_action = len(self.policy.places)
        beliefs: dict[Micro, float] = dict(self.reached)
        for place, token in enumerate(ids):
            if token < first_action:
                if place:
                    beliefs = self._until_view(beliefs, token)
                kept = {one: share for one, share in beliefs.items() if self._place(one) == token}
                beliefs = kept or beliefs
            else:
                beliefs = {(node, (*before, token - first_action)): share for (node, before), share in beliefs.items()}
        weight = sum(beliefs.values())
        return sum(share * self.values[one] for one, share in beliefs.items()) / weight if weight else 0.0

    def _until_view(self, beliefs: dict[Micro, float], token: int) -> dict[Micro, float]:
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
        speakers = self.problem.speakers(node)
        if len(before) == len(speakers):
            return None
        return self.policy.places[self.problem.view(node, speakers[len(before)])]


@functools.lru_cache(maxsize=64)
def _order(problem: Problem) -> tuple[Node, ...]:
    """All nodes, each before those it leads to."""
    before = dict.fromkeys(problem.nodes, 0)
    leads = {
        node: {way.node for actions in problem.joint_actions(node) for way in problem.ways(node, actions)}
        for node in problem.nodes
    }
    for after in leads.values():
        for node in after:
            before[node] += 1
    ready = [node for node, count in before.items() if not count]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for later in leads[node]:
            before[later] -= 1
            if not before[later]:
                ready.append(later)
    if len(order) < len(leads):
        raise ValueError(
            f"nodes of a problem must never return, got a circle in {problem.name!r}; count steps in them."
        )
    return tuple(order)


def _in_order(problem: Problem) -> Sequence[Node]:
    return _order(problem)


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
        ahead = policy.moved(sign * step * _natural(truth))
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
        policy = policy.moved(sign * _natural(truth))
    return policy


def _natural(truth: Truth) -> Vector:
    """The direction in which a logit moves by its advantage, the longest by 1."""
    shares = np.maximum(truth.policy.probabilities, 1e-12)
    direction = np.where(np.isfinite(truth.policy.logits), truth.gradient / shares, 0.0)
    longest = np.abs(direction).max()
    return direction / longest if longest else direction
