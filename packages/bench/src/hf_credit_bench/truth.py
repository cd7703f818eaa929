"""Exact values, advantages and gradients of a table policy, by dynamic programming over all nodes."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
        self._steps = steps = _steps_of(self.problem)
        self._advantages: dict[tuple[Node, int], Vector] = {}
        # The weight of a step: the probability of its action, if it is one, times that of its transition.
        self._weights = steps.shares * np.append(policy.probabilities.ravel(), 1.0)[steps.choices]
        worth = self._weights * (steps.rewards if paid else steps.worths)
        self._values = np.zeros(len(steps.micros))
        for part, places, firsts in steps.levels:
            ahead = worth[part] + self._weights[part] * self._values[steps.after[part]]
            self._values[places] = np.add.reduceat(ahead, firsts)
        starts, others = self.problem.starts(), self.problem.held_out()
        self.start = self._value_of(starts)
        self.judged = self._value_of(others or starts)

    def _value_of(self, starts: Sequence[Way]) -> float:
        return float(sum(way.probability * self._values[self._steps.micros[way.node, ()]] for way in starts))

    @functools.cached_property
    def values(self) -> Mapping[Micro, float]:
        """V of each x."""
        return dict(zip(self._steps.micros, self._values.tolist(), strict=True))

    @functools.cached_property
    def action_values(self) -> Mapping[Micro, list[float]]:
        """Q of each action in each x in which one of the speakers acts."""
        return {
            one: [self.values[step.after] for step in ahead]
            for one, ahead in self._steps.ahead.items()
            if self._view(one) is not None
        }

    @functools.cached_property
    def _reached(self) -> Vector:
        steps, reached = self._steps, np.zeros(len(self._values))
        for way in self.problem.starts():
            reached[steps.micros[way.node, ()]] += way.probability
        for part, _, _ in reversed(steps.levels):
            np.add.at(reached, steps.after[part], self._weights[part] * reached[steps.before[part]])
        return reached

    @functools.cached_property
    def reached(self) -> Mapping[Micro, float]:
        """The probability of each x in an episode."""
        return {one: share for one, share in zip(self._steps.micros, self._reached.tolist(), strict=True) if share}

    @functools.cached_property
    def gradient(self) -> Vector:
        """grad J with respect to the logits, of shape (views, actions)."""
        steps = self._steps
        ahead = self._values[steps.after] - self._values[steps.before]
        parts = self._weights * self._reached[steps.before] * ahead
        gradient = np.bincount(steps.choices, parts, self.policy.probabilities.size + 1).astype(np.float64)
        return gradient[:-1].reshape(self.policy.probabilities.shape)  # the last is no choice

    def advantages(self, node: Node, speaker: int) -> Vector:
        """Returns A(s, a) of each action of a speaker, with the policy's actions for the other speakers.

        Args:
            node: in which the speaker acts.
            speaker: its index among the node's speakers.
        """
        if (node, speaker) not in self._advantages:
            rows = [self.policy.of(self.problem.view(node, role)) for role in self.problem.speakers(node)[:speaker]]
            mean = sum(
                math.prod(row[action] for row, action in zip(rows, before, strict=True))
                * np.array(self.action_values[node, before])
                for before in itertools.product(*(range(len(row)) for row in rows))
            )
            self._advantages[node, speaker] = mean - self.values[node, ()]
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
        if ids and ids[-1] < len(self.policy.places):
            met = self._until_view(beliefs, ids[-1]) if len(ids) > 1 else beliefs
            beliefs = {one: share for one, share in met.items() if self._view(one) == ids[-1]} or beliefs
        elif ids:
            action = ids[-1] - len(self.policy.places)
            beliefs = {(node, (*before, action)): share for (node, before), share in beliefs.items()}
        weight = sum(beliefs.values())
        return beliefs, sum(share * self.values[one] for one, share in beliefs.items()) / weight if weight else 0.0

    def _until_view(self, beliefs: Mapping[Micro, float], token: int) -> dict[Micro, float]:
        """Returns the probabilities of nodes at the next occurrence of a view."""
        met: dict[Micro, float] = {}
        while beliefs:
            later: dict[Micro, float] = {}
            for one, share in beliefs.items():
                if self._view(one) == token:
                    met[one] = met.get(one, 0.0) + share
                else:
                    for probability, after in self._after(one):
                        later[after] = later.get(after, 0.0) + share * probability
            beliefs = later
        return met

    def _after(self, one: Micro) -> list[tuple[float, Micro]]:
        """Returns the x that may follow, with their probabilities."""
        flat = self.policy.probabilities.ravel()
        return [
            (step.share if step.choice is None else float(flat[step.choice]), step.after)
            for step in self._steps.ahead[one]
        ]

    def _view(self, one: Micro) -> int | None:
        """Returns the index of the view in which a speaker acts; `None` once all have."""
        ahead = self._steps.ahead[one]
        choice = ahead[0].choice if ahead else None
        return None if choice is None else choice // self.policy.probabilities.shape[1]


@dataclass(frozen=True, slots=True)
class _Step:
    """From an x to one that follows: an action of a speaker, or a transition once all have acted."""

    after: Micro
    choice: int | None = None  # the place of the action's probability among those of all views
    share: float = 1.0  # the probability of the transition
    worth: float = 0.0
    reward: float = 0.0


class _Steps:
    """The policy-independent data of all steps, ordered by their distance from the end.

    Attributes:
        ahead: the steps from each x, which comes after those that follow it.
        levels: of the x that are equally far from the end their steps, their places among all x, and for each of them
            the first of its steps, counted from that of the level.
    """

    def __init__(self, problem: Problem) -> None:
        self.ahead = _ahead(problem)
        self.micros = {one: place for place, one in enumerate(self.ahead)}
        heights: dict[Micro, int] = {}
        of_height: dict[int, list[Micro]] = {}
        for one, steps in self.ahead.items():
            heights[one] = 1 + max((heights[step.after] for step in steps), default=-1)
            of_height.setdefault(heights[one], []).append(one)
        self.levels: list[tuple[slice, NDArray[np.intp], NDArray[np.intp]]] = []
        every: list[_Step] = []
        before: list[int] = []
        for _, level in sorted(of_height.items())[1:]:  # without the ends
            firsts = np.cumsum([0, *(len(self.ahead[one]) for one in level)])
            part = slice(len(every), len(every) + int(firsts[-1]))
            self.levels.append((part, np.array([self.micros[one] for one in level]), firsts[:-1]))
            every += [step for one in level for step in self.ahead[one]]
            before += [self.micros[one] for one in level for _ in self.ahead[one]]
        beyond = len(problem.views) * max(map(problem.actions, problem.views))
        self.before = np.array(before, dtype=np.intp)
        self.after = np.array([self.micros[step.after] for step in every], dtype=np.intp)
        self.choices = np.array([beyond if step.choice is None else step.choice for step in every], dtype=np.intp)
        self.shares, self.worths, self.rewards = (
            np.array([getattr(step, name) for step in every], dtype=float) for name in ("share", "worth", "reward")
        )


_steps_of = functools.lru_cache(maxsize=64)(_Steps)


def _ahead(problem: Problem) -> Mapping[Micro, Sequence[_Step]]:
    """Returns the steps from each x, which comes after those that follow it."""
    places, most = {view: place for place, view in enumerate(problem.views)}, max(map(problem.actions, problem.views))
    found: dict[Micro, Sequence[_Step]] = {}
    for node in problem.from_the_end:
        seen = [problem.view(node, role) for role in problem.speakers(node)]
        joint = problem.joint_actions(node) or [()]
        for actions in joint if seen else ():
            ways = problem.ways(node, actions)
            found[node, actions] = [
                _Step((way.node, ()), None, way.probability, way.value, way.reward) for way in ways
            ]
        for before in sorted(
            {actions[:known] for actions in joint for known in range(len(seen))}, key=len, reverse=True
        ):
            view = seen[len(before)]
            found[node, before] = [
                _Step((node, (*before, action)), places[view] * most + action)
                for action in range(problem.actions(view))
            ]
        found.setdefault((node, ()), [])
    return found


def best(policy: TablePolicy) -> float:
    """Returns the largest value by which learning is judged: for a table J at the end of the natural gradient's path
    up, for a network that of perfect actions, since its views tell the tasks apart."""
    problem = policy.problem
    if problem.hidden:
        known, ways = perfect(problem), problem.held_out() or problem.starts()
        return sum(way.probability * known[way.node, ()][1] for way in ways)
    reached = -math.inf
    for _ in range(400):
        truth = Truth(policy)
        if truth.start - reached <= 1e-7 * abs(truth.start):
            break
        reached = truth.start
        policy = policy.moved(natural_direction(truth))
    return reached


@functools.lru_cache(maxsize=64)
def perfect(problem: Problem) -> Mapping[Micro, tuple[int, float]]:
    """Returns for each x the best action of a speaker who knows it, and the value of acting so from there on."""
    found: dict[Micro, tuple[int, float]] = {}
    for one, steps in _steps_of(problem).ahead.items():
        worths = [step.share * (step.worth + found[step.after][1]) for step in steps]
        acts = steps and steps[0].choice is not None
        found[one] = max(enumerate(worths), key=operator.itemgetter(1)) if acts else (0, sum(worths))
    return found


def natural_direction(truth: Truth) -> Vector:
    """Returns the natural gradient of a table (Kakade 2002) times how often each view is met: d(view) A(view, action)
    for each logit, scaled to a largest change of 1."""
    shares = np.maximum(truth.policy.probabilities, 1e-12)
    direction = np.where(np.isfinite(truth.policy.logits), truth.gradient / shares, 0.0)
    longest = np.abs(direction).max()
    return direction / longest if longest else direction
