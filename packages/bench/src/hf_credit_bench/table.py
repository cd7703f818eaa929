"""A tabular softmax policy over views, its sampler, and the chat that renders each view as one token."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_credit.environments.randomness import stream
from hf_credit.rollouts import Generation
from hf_credit_bench.problem import Problem, View

Vector = NDArray[np.float64]


class TablePolicy:
    """pi(a | v) = softmax of the view's row of logits.

    Args:
        logits: of shape (views, actions); -inf where a view has fewer actions. The problem's initial ones if `None`.
    """

    def __init__(self, problem: Problem, logits: Vector | None = None) -> None:
        self.problem = problem
        self.places = {view: place for place, view in enumerate(problem.views)}
        if logits is None:
            rows = [problem.logits(view) for view in problem.views]
            logits = np.full((len(rows), max(map(len, rows))), -math.inf)
            for place, row in enumerate(rows):
                logits[place, : len(row)] = row
        self.logits = logits
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        self.probabilities: Vector = shifted / shifted.sum(axis=1, keepdims=True)

    def of(self, view: View) -> Vector:
        """Returns the probability of each action in a view."""
        return self.probabilities[self.places[view], : self.problem.actions(view)]

    def moved(self, step: Vector) -> TablePolicy:
        """Returns the policy after a step of its parameters, here the logits."""
        return TablePolicy(self.problem, self.logits + step)

    def pulled(self, gradient: Vector) -> Vector:
        """Returns the gradient with respect to the parameters of a gradient with respect to the logits."""
        return gradient


class TableChat:
    """Renders each view and each action as one token: token i is view i, and the actions follow."""

    template_kwargs: Mapping[str, Any] = {}

    def __init__(self, problem: Problem) -> None:
        self.first_action = len(problem.views)
        self.actions = max(problem.actions(view) for view in problem.views)
        self._of = {repr(view): (place,) for place, view in enumerate(problem.views)}

    def contexts(self, asked: Sequence[tuple[Any, Any]]) -> list[Any]:
        return [self._of[request.messages[-1]["content"]] for request, _ in asked]

    def context(self, messages: Sequence[Any], thread: Any = None, tools: Sequence[Any] = ()) -> tuple[int, ...]:
        return self._of[messages[-1]["content"]]

    def texts(self, replies: Sequence[Sequence[int]], contexts: Sequence[Sequence[int]] = ()) -> list[str]:
        return [str(ids[0] - self.first_action) for ids in replies]

    def opened(self, context: Sequence[int]) -> str:
        """Returns no mark: a table does not think."""
        return ""

    def encode(self, text: str) -> tuple[int, ...]:
        """Returns no token: a table reads only views and actions."""
        return ()

    def reply_ids(self, text: str, context: Sequence[int] = (), tools: Sequence[Any] = ()) -> tuple[int, ...]:
        return (self.first_action + int(text),)

    def answer_ids(
        self, before: str, answer: str, context: Sequence[int] = ()
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (), self.reply_ids(answer)

    @property
    def end_tokens(self) -> range:
        """The tokens of all actions, each of which ends its reply."""
        return range(self.first_action, self.first_action + self.actions)


class TableSampler:
    """Draws actions from a table.

    Args:
        choose: draws instead of random numbers: takes probabilities and returns an index.
    """

    def __init__(
        self, policy: TablePolicy, seed: int = 0, choose: Callable[[Sequence[float]], int] | None = None
    ) -> None:
        self.policy = policy
        self.first_action = len(policy.places)
        self._random = random.Random(seed)
        self._choose = choose
        self._cumulative = [list(itertools.accumulate(row)) for row in policy.probabilities.tolist()]
        self._logs = np.log(np.maximum(policy.probabilities, 1e-300)).tolist()
        self.seeded = None if choose else self._seeded

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        if self._choose is not None:
            rows = self.policy.probabilities
            return [self._reply(context[-1], self._choose(rows[context[-1]])) for context in contexts]
        return [self._drawn(context[-1], self._random.random()) for context in contexts]

    def _seeded(self, contexts: Sequence[Sequence[int]], seeds: Sequence[int | None]) -> list[Generation]:
        uniform = (self._random.random() if seed is None else stream(seed, "table").random() for seed in seeds)
        return [self._drawn(context[-1], one) for context, one in zip(contexts, uniform, strict=True)]

    def _drawn(self, view: int, uniform: float) -> Generation:
        row = self._cumulative[view]
        return self._reply(view, min(bisect.bisect_right(row, uniform * row[-1]), len(row) - 1))

    def _reply(self, view: int, action: int) -> Generation:
        return Generation(ids=(self.first_action + action,), logprobs=(self._logs[view][action],))
