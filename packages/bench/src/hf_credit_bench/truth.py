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
from numpy.typing import NDArray

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

    Attributes:
        start: J, the value of the first nodes.
        judged: the value by which learning is judged: that of held-out tasks, if there are any, else J.
    """

    def __init__(self, policy: TablePolicy, paid: bool = False) -> None:
        self.policy, self.problem = policy, policy.problem
        self._layout = _layout(self.problem)
        self._rows = policy.probabilities.tolist()
        self._advantages: dict[tuple[Node, int], Vector] = {}
        edges = self._edges = _edges(self.problem)
        # The weight of an edge: the probability of its action, if it is one, times that of its transition.
        self._weights = edges.shares * np.append(policy.probabilities.ravel(), 1.0)[edges.choices]
        worth = self._weights * (edges.rewards if paid else edges.worths)
        self._values = np.zeros(len(edges.micros))
        for level in edges.levels:
            ahead = worth[level.edges] + self._weights[level.edges] * self._values[edges.after[level.edges]]
            self._values[level.places] = np.add.reduceat(ahead, level.firsts)
        starts, others = self.problem.starts(), self.problem.held_out()
        self.start = self._value_of(starts)
        self.judged = self._value_of(others or starts)

    def _value_of(self, starts: Sequence[Way]) -> float:
        return float(sum(way.probability * self._values[self._edges.micros[way.node, ()]] for way in starts))

    @functools.cached_property
    def values(self) -> Mapping[Micro, float]:
        """V of each x."""
        return dict(zip(self._edges.micros, self._values.tolist(), strict=True))

    @functools.cached_property
    def action_values(self) -> Mapping[Micro, list[float]]:
        """Q of each action in each x in which one of the speakers acts."""
        return {
            (one.node, before): [self.values[one.node, (*before, action)] for action in range(one.counts[len(before)])]
            for one in self._layout.values()
            for before in one.before
        }

    @functools.cached_property
    def _reached(self) -> Vector:
        edges, reached = self._edges, np.zeros(len(self._values))
        for way in self.problem.starts():
            reached[edges.micros[way.node, ()]] += way.probability
        for level in reversed(edges.levels):
            shares = self._weights[level.edges] * reached[edges.before[level.edges]]
            np.add.at(reached, edges.after[level.edges], shares)
        return reached

    @functools.cached_property
    def reached(self) -> Mapping[Micro, float]:
        """The probability of each x in an episode."""
        return {one: share for one, share in zip(self._edges.micros, self._reached.tolist(), strict=True) if share}

    def _after(self, node: Node, actions: tuple[int, ...]) -> list[tuple[float, Micro]]:
        one = self._layout[node]
        if len(actions) == len(one.views):
            return [(way.probability, (way.node, ())) for way in one.joint[actions]]
        row = self._rows[one.views[len(actions)]]
        return [(row[action], (node, (*actions, action))) for action in range(one.counts[len(actions)])]

    @functools.cached_property
    def gradient(self) -> Vector:
        """grad J with respect to the logits, of shape (views, actions)."""
        edges = self._edges
        ahead = self._values[edges.after] - self._values[edges.before]
        parts = self._weights * self._reached[edges.before] * ahead
        gradient = np.bincount(edges.choices, parts, self.policy.probabilities.size + 1)  # the last is no choice
        return gradient[:-1].reshape(self.policy.probabilities.shape)

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


@dataclass(frozen=True)
class _Level:
    """The x that are equally far from the end, and the edges from them, in their order."""

    edges: slice
    places: NDArray[np.intp]  # of these x among all
    firsts: NDArray[np.intp]  # for each of them the first of its edges, counted from that of the level


@dataclass(frozen=True)
class _Edges:
    """The policy-independent data of all steps from an x to one that follows: an action, or a transition."""

    micros: Mapping[Micro, int]
    levels: Sequence[_Level]  # from the end
    before: NDArray[np.intp]
    after: NDArray[np.intp]
    choices: NDArray[np.intp]  # the place of the action's probability, or one beyond the last
    shares: Vector  # the probability of the transition; 1 for an action
    worths: Vector
    rewards: Vector


@functools.lru_cache(maxsize=16)
def _edges(problem: Problem) -> _Edges:
    most, nowhere = max(map(problem.actions, problem.views)), len(problem.views)
    from_micro: dict[Micro, list[tuple[Micro, int, float, float, float]]] = {}
    for one in reversed([*_layout(problem).values()]):
        for actions, ways in one.joint.items():
            from_micro[one.node, actions] = [
                ((way.node, ()), nowhere * most, way.probability, way.value, way.reward) for way in ways
            ]
        for before in reversed(one.before):
            place = one.views[len(before)] * most
            from_micro[one.node, before] = [
                ((one.node, (*before, action)), place + action, 1.0, 0.0, 0.0)
                for action in range(one.counts[len(before)])
            ]
        if not one.views:
            from_micro[one.node, ()] = []
    heights: dict[Micro, int] = {}
    of_height: dict[int, list[Micro]] = {}
    for micro, rest in from_micro.items():
        heights[micro] = 1 + max((heights[one[0]] for one in rest), default=-1)
        of_height.setdefault(heights[micro], []).append(micro)
    micros = {micro: place for place, micro in enumerate(from_micro)}
    levels, edges = [], []
    for _, places in sorted(of_height.items())[1:]:
        counts = [len(from_micro[micro]) for micro in places]
        begin = len(edges)
        edges += [(micros[micro], micros[one], *rest) for micro in places for one, *rest in from_micro[micro]]
        firsts = np.cumsum([0, *counts[:-1]])
        levels.append(_Level(slice(begin, len(edges)), np.array([micros[one] for one in places]), firsts))
    before, after, choices, shares, worths, rewards = zip(*edges, strict=True) if edges else [()] * 6
    wholes = (np.array(one, dtype=np.intp) for one in (before, after, choices))
    return _Edges(micros, levels, *wholes, *(np.array(one, dtype=float) for one in (shares, worths, rewards)))


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

    A logit of a table moves by its advantage, summed over the visits to its view, so the path depends on no step size;
    a network moves along the gradient. Upwards the share is a fraction of the possible gain in J, downwards of the
    possible loss.

    Args:
        share: in (0, 1), or in (-1, 0) downwards.
    """
    start = Truth(policy).start
    if policy.problem.hidden and share > 0:
        end = _value(policy.problem.starts(), perfect(policy.problem))
    else:
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
    """Returns the largest value by which learning is judged: for a table J at the end of the natural gradient's path
    up, for a network that of perfect actions, since its views tell the tasks apart."""
    problem = policy.problem
    if problem.hidden:
        return _value(problem.held_out() or problem.starts(), perfect(problem))
    return Truth(_climbed(policy, 400, 1.0)).start


@functools.lru_cache(maxsize=64)
def perfect(problem: Problem) -> Mapping[Node, tuple[tuple[int, ...], float]]:
    """Returns for each node the best actions of those who know it, and its value with them."""
    found: dict[Node, tuple[tuple[int, ...], float]] = {}
    for one in reversed([*_layout(problem).values()]):
        worths = {
            actions: sum(way.probability * (way.value + found[way.node][1]) for way in ways)
            for actions, ways in one.joint.items()
        }
        found[one.node] = max(worths.items(), key=operator.itemgetter(1), default=((), 0.0))
    return found


def _value(starts: Sequence[Way], values: Mapping[Node, tuple[tuple[int, ...], float]]) -> float:
    return sum(way.probability * values[way.node][1] for way in starts)


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
    """Returns the direction of a policy's `ascent`, scaled so that the largest change of a parameter is 1."""
    direction = truth.policy.ascent(truth.gradient)
    longest = np.abs(direction).max()
    return direction / longest if longest else direction
