"""Exact values, advantages and gradients of a table policy, by dynamic programming over all nodes."""

from __future__ import annotations

import functools
import graphlib
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_credit.rollouts import Decision
from hf_credit_bench.problem import Node, Problem, Way
from hf_credit_bench.table import TablePolicy, Vector

Micro = tuple[Node, tuple[int, ...]]
"""A node, and the actions of its first speakers, where several act simultaneously and are taken in order."""


class Truth:
    """The exact values of a policy in a problem.

        Q(x, a) = V(x'),   V(x) = sum over a of pi(a | x) Q(x, a),   V(x) = E[r + V(x')] once all have acted

    where x is a node and the actions of its first speakers; V(end) = 0. Then
    grad J = sum over x of d(x) sum over a of pi(a | x) Q(x, a) grad log pi(a | x), with d(x) the probability of x in
    an episode.

    Args:
        paid: whether r is the reward, which critics learn, instead of the true value.
    """

    def __init__(self, policy: TablePolicy, paid: bool = False) -> None:
        self.policy, self.problem = policy, policy.problem
        self.values: dict[Micro, float] = {}
        self.action_values: dict[Micro, list[float]] = {}
        self._layout, self._rows = _layout(self.problem), policy.probabilities.tolist()
        self._advantages: dict[tuple[Node, int], Vector] = {}
        values = self.values
        for one in reversed([*self._layout.values()]):
            node = one.node
            if not one.views:
                values[node, ()] = 0.0
            for actions, ways in one.joint.items():
                values[node, actions] = sum(
                    way.probability * ((way.reward if paid else way.value) + values[way.node, ()]) for way in ways
                )
            for before in reversed(one.before):
                row = self._rows[one.views[len(before)]]
                later = [values[node, (*before, action)] for action in range(one.counts[len(before)])]
                self.action_values[node, before] = later
                values[node, before] = sum(map(operator.mul, row, later))
        self.start = sum(way.probability * values[way.node, ()] for way in self.problem.starts())

    @functools.cached_property
    def reached(self) -> Mapping[Micro, float]:
        """The probability of each x in an episode."""
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
        """grad J with respect to the logits, of shape (views, actions)."""
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
        """Returns A(s, a) of each action of a speaker, with the policy's actions for the other speakers.

        Args:
            node: in which the speaker acts.
            speaker: its index among the node's speakers.
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
        """Returns the node of a decision, the index of its speaker, and the action."""
        node = getattr(decision.state, "inner", decision.state).node  # a rule of truncation wraps states
        return node, list(self.problem.speakers(node)).index(decision.role), int(decision.action_text)

    def value_read(self, ids: tuple[int, ...]) -> float:
        """Returns the ideal prediction of a critic that has read these tokens: the mean of V over consistent nodes.

        Views and actions count in their order; the policy determines unread ones in between. A single view stands for
        any visit to it.

        Args:
            ids: tokens of `TableChat`.
        """
        return self._read(ids)[1]

    @functools.cache  # noqa: B019 - as long as the policy
    def _read(self, ids: tuple[int, ...]) -> tuple[Mapping[Micro, float], float]:
        """Returns the probabilities of the consistent nodes, and the mean of V over them."""
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
        """Returns the probabilities of nodes at the next occurrence of a view."""
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
    """The policy-independent data of a node."""

    node: Node
    views: tuple[int, ...]  # for each speaker the index of its view among the problem's views
    counts: tuple[int, ...]  # for each speaker the number of actions
    before: tuple[tuple[int, ...], ...]  # the possible actions of first speakers, the shortest first
    joint: Mapping[tuple[int, ...], Sequence[Way]]  # by the actions of all speakers; empty at the end


@functools.lru_cache(maxsize=64)
def _layout(problem: Problem) -> Mapping[Node, _Place]:
    """Returns the data of all nodes, each before its successors."""
    places = {view: place for place, view in enumerate(problem.views)}
    laid = {}
    for node in problem.nodes:
        seen = [problem.view(node, role) for role in problem.speakers(node)]
        joint = {actions: tuple(problem.ways(node, actions)) for actions in problem.joint_actions(node)}
        before = dict.fromkeys(actions[:known] for known in range(len(seen)) for actions in joint)
        views, counts = (places[view] for view in seen), (problem.actions(view) for view in seen)
        laid[node] = _Place(node, tuple(views), tuple(counts), tuple(before), joint)
    return {node: laid[node] for node in _in_order(laid)}


def _in_order(laid: Mapping[Node, _Place]) -> list[Node]:
    successors = {node: [way.node for ways in one.joint.values() for way in ways] for node, one in laid.items()}
    try:
        return [*graphlib.TopologicalSorter(successors).static_order()][::-1]
    except graphlib.CycleError as error:
        raise ValueError(
            f"an episode must never return to a node, got the cycle {error.args[1]!r:.200}; count steps in the nodes."
        ) from None


def solved(policy: TablePolicy, share: float, tolerance: float = 1e-4) -> TablePolicy:
    """Returns the policy after natural gradient steps up, or down, to a given fraction of the way in J.

    A logit moves by its advantage, summed over the visits to its view (Kakade 2002), so the path depends on no step
    size. Upwards the share is a fraction of the possible gain in J, downwards of the possible loss.

    Args:
        share: in (0, 1), or in (-1, 0) downwards.
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
    """Returns J at the end of the natural gradient's path up, its maximum on that path."""
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
    """Returns the direction in which each logit moves by its advantage, scaled so that the largest change is 1."""
    shares = np.maximum(truth.policy.probabilities, 1e-12)
    direction = np.where(np.isfinite(truth.policy.logits), truth.gradient / shares, 0.0)
    longest = np.abs(direction).max()
    return direction / longest if longest else direction
