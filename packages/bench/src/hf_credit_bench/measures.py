"""The cost and bias of a method's credit at a fixed policy, and how fast the method learns."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_credit import methods
from hf_credit.environments.randomness import derive
from hf_credit.methods import Method
from hf_credit.options import check_options
from hf_credit.registry import Registry
from hf_credit.validators import whole_number
from hf_credit_bench.network import policy_at_start
from hf_credit_bench.play import ARMS, REFERENCES, Critic, Player, Update, Ways
from hf_credit_bench.problem import Problem
from hf_credit_bench.problems import PROBLEMS
from hf_credit_bench.table import TablePolicy, Vector
from hf_credit_bench.truth import Truth

STEPS = (0.005, 0.015, 0.05, 0.15, 0.5, 1.5, 5.0, 15.0, 50.0)
"""The norms of an update of the parameters, of which each method uses the one that is best on other seeds."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """The measures of a method at a policy of a problem. g is its gradient of an update, G the true one, u = G / |G|.

    Attributes:
        scale: E[g] . G / |G|^2: 1 for unbiased credit with a loss that adds up decisions.
        angle: between E[g] and G in degrees, less the part that noise explains.
        angle_error: the standard error of the angle, in degrees.
        along: tokens x Var(g . u) / (E[g] . u)^2, the tokens until signal-to-noise is 1 along the true gradient;
            infinite where E[g] . u or the estimate of its square, less the part of noise, is not positive.
        trace: tokens x tr Cov(g) / (E[g] . u)^2, likewise.
        along_error, trace_error: their standard errors.
        credit_error: the root mean square of the error in the expected credit of a decision, at the best scale and
            less the mean of its state, over that of the exact advantages; sampling error is subtracted. NaN if no
            state occurred often enough.
        tokens: of an update.
        seconds: of an update, for collection and credit.
    """

    scale: float
    angle: float
    angle_error: float
    along: float
    along_error: float
    trace: float
    trace_error: float
    credit_error: float
    tokens: float
    updates: int
    seconds: float


def make_method(method: str | Method, **options: Any) -> Method:
    """Returns a method by its name, the name of a reference or an arm of the bench, or `"module:factory"`."""
    if isinstance(method, Method):
        return method
    if factory := (REFERENCES | ARMS).get(method):
        return factory()
    return methods.make(method, **options)


def make_problem(problem: str | Problem, **dials: Any) -> Problem:
    """Returns a problem by its name, or `"module:factory"`.

    Raises:
        ValueError: no problem has this name, it has no such dial, or a dial is out of its range.
    """
    if isinstance(problem, Problem):
        return problem
    return Registry[Problem]("problem", PROBLEMS, Problem, check=check_options).make(problem, **dials)


def score(
    method: str | Method,
    problem: str | Problem,
    *,
    policy: TablePolicy | None = None,
    critic: Critic = "exact",
    updates: int = 200,
    instances: int = 4,
    seed: int = 0,
) -> Score:
    """Measures a method's credit at a fixed policy, by Monte Carlo against exact values.

    Args:
        method: a value, a name, the name of a reference, or `"module:factory"`.
        problem: a value, a name, or `"module:factory"`.
        policy: the problem's initial one if `None`.
        critic: the predictions of critics, if the method has any.
        updates: the number of updates, at least 8.
        instances: task rows of an update.

    Raises:
        ValueError: the method does not fit the problem, or an argument is out of range.
    """
    whole_number("updates", updates, 8)
    world = make_problem(problem)
    table = policy or policy_at_start(world)
    player = Player(make_method(method), world, table, critic, instances, seed)
    begun = time.process_time()
    played = [player.update() for _ in range(updates)]
    return _measured(player.truth, played, None, time.process_time() - begun)


def enumerated(
    method: str | Method,
    problem: str | Problem,
    *,
    policy: TablePolicy | None = None,
    critic: Critic = "exact",
    instances: int = 1,
    most: int = 100_000,
) -> Score:
    """Measures as `score`, but exactly: plays the first update with every possible result of its draws.

    Args:
        method, problem, policy, critic, instances: as in `score`.
        most: the most plays of the update.

    Raises:
        ValueError: more plays are needed, the method draws values that cannot be enumerated, or updates differ.
    """
    world = make_problem(problem)
    if 0 < world.stale < 1:
        raise ValueError(f"an update that stands for all must be stale always or never, got {world.stale}; use score.")
    table = policy or policy_at_start(world)
    made, ways, truth = make_method(method), Ways(most), Truth(table)
    begun = time.process_time()
    played = list(ways.all(lambda: Player(made, world, table, critic, instances, ways=ways, truth=truth).update()))
    shares = np.array([share for share, _ in played])
    return _measured(truth, [update for _, update in played], shares, time.process_time() - begun)


def _measured(truth: Truth, played: Sequence[Update], shares: Vector | None, seconds: float) -> Score:
    """Returns the measures of a sample of updates, which have errors, or of all possible ones with their `shares`."""
    count = len(played)
    # The degrees of freedom; all possible updates are not a sample.
    free = count - 1 if shares is None else math.inf
    shares = np.full(count, 1 / count) if shares is None else shares
    true = truth.policy.pulled(truth.gradient).ravel()
    length = float(np.linalg.norm(true))
    unit = true / length if length else true
    gradients = np.stack([one.gradient.ravel() for one in played])
    tokens = np.array([one.tokens for one in played], dtype=float)
    mean = shares @ gradients
    off = gradients - mean
    along = gradients @ unit
    signal = float(shares @ along)
    squares, ahead = (off**2).sum(axis=1), (along - signal) ** 2
    # The mean's part across the truth, less its expectation from noise.
    across = mean - signal * unit
    noise = max(float(shares @ (squares - ahead)), 0.0) / free
    bias = max(float(across @ across) - noise, 0.0)
    spread = _spread(off, across) if math.isfinite(free) else 0.0
    seen = max(bias, abs(signal)) > 1e-12
    # As `hf_credit.diagnostics.signal`: the square of the mean, less its expectation from noise.
    strength = signal**2 - float(shares @ ahead) / free
    if signal > 1e-12 and strength > 0:
        influence = (2 * signal * along - ahead / free) / strength
        costs = [_cost(tokens, one * (1 + 1 / free), strength, influence, shares, free) for one in (ahead, squares)]
    else:
        costs = [(math.inf, math.nan)] * 2
    return Score(
        scale=signal / length if length else math.nan,
        angle=math.degrees(math.atan2(math.sqrt(bias), signal)) if seen else math.nan,
        angle_error=math.degrees(math.atan2(math.sqrt(spread), abs(signal))) if seen else math.nan,
        along=costs[0][0],
        along_error=costs[0][1],
        trace=costs[1][0],
        trace_error=costs[1][1],
        credit_error=_credit_error(truth, played, shares, free),
        tokens=float(shares @ tokens),
        updates=count,
        seconds=seconds / count,
    )


def _spread(off: Vector, across: Vector) -> float:
    """Returns the standard deviation of the squared norm of a mean's part across the truth: sqrt(2 tr S^2 + 4 b' S b).

    S is the covariance of the mean, b that part; tr S^2 comes from the inner products of the draws, which are fewer
    than the entries of a gradient.
    """
    count = len(off) * (len(off) - 1)
    return math.sqrt(2 * float(((off @ off.T) ** 2).sum()) / count**2 + 4 * float(((off @ across) ** 2).sum()) / count)


def _cost(
    tokens: Vector, squares: Vector, strength: float, of_strength: Vector, shares: Vector, free: float
) -> tuple[float, float]:
    """Returns tokens x variance / strength, and its standard error by the delta method, given the influence of each
    update on the logarithm of the strength."""
    variance, spent = float(shares @ squares), float(shares @ tokens)
    cost = spent * variance / strength
    if not cost:
        return 0.0, 0.0
    influence = squares / variance + tokens / spent - of_strength
    return cost, cost * math.sqrt(float(shares @ (influence - shares @ influence) ** 2) / free)


def _credit_error(truth: Truth, played: Sequence[Update], shares: Vector, free: float, least: int = 8) -> float:
    got: dict[tuple[Any, int, int], list[tuple[float, float]]] = {}
    for update, share in zip(played, shares, strict=True):
        for decision, credit in update.decisions:
            got.setdefault(truth.place_of(decision), []).append((share, credit))
    sampled = math.isfinite(free)
    found: list[Vector] = []  # of each action: its credit less the state's, its advantage, weight and variance
    for node, speaker in {(node, speaker) for node, speaker, _ in got}:
        advantages = truth.advantages(node, speaker)
        credits = [np.array(got.get((node, speaker, action), [])) for action in range(len(advantages))]
        if any(len(one) < (least if sampled else 1) for one in credits):
            continue
        policy = truth.policy.of(truth.problem.view(node, truth.problem.speakers(node)[speaker]))
        middle = np.array([np.average(one[:, 1], weights=one[:, 0]) for one in credits])
        variances = np.array([np.var(one[:, 1], ddof=1) / len(one) if sampled else 0.0 for one in credits])
        weights = policy * sum(one[:, 0].sum() for one in credits)
        errors = variances * (1 - 2 * policy) + policy**2 @ variances
        found.append(np.array([middle - policy @ middle, advantages, weights, errors]))
    if not found:
        return math.nan
    c, a, w, v = np.concatenate(found, axis=1)
    size = float(np.average(a**2, weights=w))
    scale = float(np.average(a * c, weights=w)) / size if size else 0.0
    if scale <= 1e-12:
        return math.inf
    squares = np.average((c / scale - a) ** 2 - v / scale**2, weights=w)
    return math.sqrt(max(float(squares), 0.0) / size)


def learning(
    method: str | Method,
    problem: str | Problem,
    *,
    seed: int,
    step: float,
    tokens: int,
    critic: Critic = "exact",
    instances: int = 4,
) -> list[tuple[int, float]]:
    """Returns the tokens spent and the exact J of the policy after each update; with held-out tasks their value.

    The parameters move by `step` times the gradient over the root of its running mean square.

    Args:
        method, problem, critic, instances: as in `score`.
        step: the norm of an update, such as one of `STEPS`.
    """
    world = make_problem(problem)
    player = Player(make_method(method), world, policy_at_start(world), critic, instances, derive(seed, "learning"))
    curve, spent, square = [(0, player.truth.judged)], 0, 0.0
    while spent < tokens:
        update = player.update()
        spent += update.tokens
        square += (float((update.gradient**2).sum()) - square) / min(player.updates, 10)
        if square > 0:
            player.move(step * update.gradient / math.sqrt(square))
        curve.append((spent, player.truth.judged))
    return curve


def area(curve: Sequence[tuple[int, float]], tokens: int, start: float, end: float) -> float:
    """Returns the mean of J over a budget of tokens, scaled to 0 at `start` and 1 at `end`.

    Args:
        curve: from `learning`.
        start, end: values of J.
    """
    pairs = itertools.pairwise(curve)
    total = sum((min(after, tokens) - before) * value for (before, value), (after, _) in pairs if before < tokens)
    return (total / tokens - start) / (end - start)
