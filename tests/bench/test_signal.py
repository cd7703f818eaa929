"""The estimated signal of methods, against its exact value by enumeration of all draws of a collection."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hf_credit.diagnostics.signal import Played, cosine, signal
from hf_credit.rollouts import Ledger
from hf_credit_bench import make_method
from hf_credit_bench.play import Player, Ways
from hf_credit_bench.problem import Problem
from hf_credit_bench.problems import Chain, Late, Paid
from hf_credit_bench.table import TablePolicy
from hf_credit_bench.truth import Truth

COLLECTIONS, TOGETHER, REPETITIONS = 24, 4, 400
PROBLEMS = [
    ("exact_advantage", {}, Chain(length=3)),
    ("outcome_reward", {}, Chain(length=2)),
    ("rloo", {"group_size": 3}, Late(horizon=1)),
    ("grpo", {"group_size": 2}, Chain(length=2)),
    ("rloo", {"group_size": 2}, Paid(horizon=2)),
]


def _spent(tokens: int) -> Ledger:
    return Ledger(completion_tokens=int(tokens))


class Enumerated:
    """Every collection that a method can play, with its probability."""

    def __init__(self, name: str, options: Any, problem: Problem) -> None:
        ways, table, truth = Ways(), TablePolicy(problem), Truth(TablePolicy(problem))
        settings: dict[str, Any] = {"instances": 1 if options else 2, "ways": ways, "truth": truth}
        method = make_method(name, **options)
        shares, updates = zip(*ways.all(lambda: Player(method, problem, table, **settings).update()), strict=True)
        self.shares = np.array(shares)
        self.gradients = np.stack([one.gradient.ravel() for one in updates])
        self.tokens = np.array([one.tokens for one in updates])
        self.mean = self.shares @ self.gradients
        self.signal = float(self.mean @ self.mean)
        self.variance = float(self.shares @ (self.gradients**2).sum(axis=1)) - self.signal
        self.cost = float(self.shares @ self.tokens) * self.variance / self.signal

    def drawn(self, seed: int) -> tuple[np.ndarray, list[Played]]:
        """Independent collections, each the mean of several that were enumerated: V is that of one over their number,
        the tokens are as many times those of one."""
        size, shares = (COLLECTIONS, TOGETHER), self.shares / self.shares.sum()
        places = np.random.default_rng(seed).choice(len(shares), size, p=shares)
        costs = self.tokens[places].sum(axis=1)
        return self.gradients[places].mean(axis=1), [Played(cost=_spent(cost), outcomes=()) for cost in costs]


@pytest.mark.parametrize(("name", "options", "problem"), PROBLEMS, ids=lambda one: getattr(one, "name", str(one)))
def test_the_estimates_agree_with_enumeration_and_their_intervals_cover_at_their_rate(
    name: str, options: Any, problem: Problem
) -> None:
    exact = Enumerated(name, options, problem)
    found = [signal(*exact.drawn(seed)) for seed in range(REPETITIONS)]
    for values, known in (
        ([one.signal.mean for one in found], exact.signal),
        ([TOGETHER * one.variance for one in found], exact.variance),
    ):
        assert abs(np.mean(values) - known) < 4 * np.std(values) / REPETITIONS**0.5 + 1e-12
    covered = np.mean([one.signal.low <= exact.signal <= one.signal.high for one in found])
    assert covered >= 0.9
    assert np.mean([one.cost.low <= exact.cost <= one.cost.high for one in found]) >= 0.9
    means = [np.mean([getattr(one, what) for one in found]) for what in ("tokens", "variance")]
    pooled = means[0] * means[1] / np.mean([one.signal.mean for one in found])
    assert pooled == pytest.approx(exact.cost, rel=0.15)


def test_the_cosine_of_two_methods_in_shared_episodes_is_that_of_their_expected_gradients() -> None:
    problem = Chain(length=2)
    first, second = (Enumerated(name, {}, problem) for name in ("exact_advantage", "outcome_reward"))
    assert np.allclose(first.shares, second.shares)  # one collector, so one index is the same episodes
    second.gradients = second.gradients + 0.5 * np.roll(first.gradients, 1, axis=1)  # a bias and shared noise
    mean = second.shares @ second.gradients
    exact = float(first.mean @ mean / np.linalg.norm(first.mean) / np.linalg.norm(mean))
    assert abs(exact) < 0.9
    found = [cosine(first.drawn(seed)[0], second.drawn(seed)[0]) for seed in range(REPETITIONS)]
    known = [one for one in found if not math.isnan(one.low)]
    assert len(known) > REPETITIONS / 2
    assert np.median([one.mean for one in known]) == pytest.approx(exact, abs=0.1)
    assert np.mean([one.low <= exact <= one.high for one in known]) >= 0.9
