"""A policy that shares its parameters between views: a network of two layers over their features."""

from __future__ import annotations

import functools

import numpy as np

from hf_credit_bench.problem import Problem
from hf_credit_bench.table import TablePolicy, Vector


class Network(TablePolicy):
    """pi(a | v) = softmax of W2 [tanh(W1 x(v)), x(v), 1], with x the features of the view.

    It is a table of the probabilities that it gives to all views, so values stay exact, and the gradient with respect
    to its parameters follows from that with respect to the logits by the chain rule.

    Args:
        problem: with features.
        parameters: W1 and W2, flat. Those of the start if `None`: W1 is random, the same for all runs, and W2 fits the
            problem's initial logits best (ridge regression), so some views begin better than others.
    """

    def __init__(self, problem: Problem, parameters: Vector | None = None) -> None:
        self.features = _features(problem)
        width, hidden = self.features.shape[1], problem.hidden
        if parameters is None:
            wanted = np.array([problem.logits(view) for view in problem.views])
            first = np.random.default_rng(0).normal(size=(width, hidden)) / np.sqrt(width)
            inputs = self._inputs(first)
            ridge = inputs.T @ inputs + 1e-4 * len(inputs) * np.eye(inputs.shape[1])
            parameters = np.concatenate([first.ravel(), np.linalg.solve(ridge, inputs.T @ wanted).ravel()])
        self.parameters = parameters
        self.first = parameters[: width * hidden].reshape(width, hidden)
        self.second = parameters[width * hidden :].reshape(hidden + width + 1, -1)
        super().__init__(problem, self._inputs(self.first) @ self.second)

    def _inputs(self, first: Vector) -> Vector:
        return np.hstack([np.tanh(self.features @ first), self.features, np.ones((len(self.features), 1))])

    def moved(self, step: Vector) -> Network:
        return Network(self.problem, self.parameters + step)

    def pulled(self, gradient: Vector) -> Vector:
        inputs = self._inputs(self.first)
        hidden = inputs[:, : self.first.shape[1]]
        back = (gradient @ self.second[: hidden.shape[1]].T) * (1 - hidden**2)
        return np.concatenate([(self.features.T @ back).ravel(), (inputs.T @ gradient).ravel()])


@functools.lru_cache(maxsize=8)
def _features(problem: Problem) -> Vector:
    return np.array([problem.features(view) for view in problem.views])


def policy_at_start(problem: Problem) -> TablePolicy:
    """Returns the initial policy of a problem: a network if its views have features, else a table."""
    return Network(problem) if problem.hidden else TablePolicy(problem)
