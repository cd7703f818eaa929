"""What a method's credit costs and how right it is, at a policy that stands still; and how fast it learns."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_credit import methods
from hf_credit.bench.play import REFERENCES, Critic, Player, Update, Ways
from hf_credit.bench.problem import Problem
from hf_credit.bench.problems import PROBLEMS
from hf_credit.bench.table import TablePolicy, Vector
from hf_credit.bench.truth import Truth, solved
from hf_credit.environments.randomness import derive
from hf_credit.methods import Method
from hf_credit.registry import find
from hf_credit.validators import one_of, whole_number

POLICIES = {"start": None, "half": 0.5, "solved": 0.95, "adversarial": -0.9}
"""How far each policy has come of what there is to gain, or to lose."""

STEPS = (0.05, 0.15, 0.5)
"""How far all logits move together in an update; each method has the one that did best on other seeds."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """A method at one policy of a problem. g is its gradient of an update, G the true one, u = G / |G|.

    Attributes:
        scale: E[g] . G / |G|^2: 1 where nothing is biased, and where the loss adds up decisions.
        angle: between E[g] and G in degrees, with the part of it that noise explains taken off.
        angle_error: the standard error of the angle, in degrees.
        along: tokens x Var(g . u) / (E[g] . u)^2, the tokens until signal-to-noise is 1 along the true gradient.
        trace: tokens x tr Cov(g) / (E[g] . u)^2.
        along_error, trace_error: their standard errors.
        credit_error: the root mean square of what a decision's expected credit, times the best scale and less what
            its state's decisions have in common, is off its exact advantage, over that of the advantages; sampling
            error taken off. NaN where no state was met often enough.
        tokens: of an update.
        updates: that were played.
        seconds: of an update, collecting and crediting.
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
    """A method by its name, one of the bench's references, or `"module:factory"`."""
    if isinstance(method, Method):
        return method
    if method in REFERENCES:
        return REFERENCES[method]()
    return methods.make(method, **options)


def make_problem(problem: str | Problem, **dials: Any) -> Problem:
    """A problem by its name, or `"module:factory"`.

    Raises:
        ValueError: there is none of that name, or it has no such dial.
    """
    if isinstance(problem, Problem):
        return problem
    factory = find("problem", PROBLEMS, problem)
    try:
        return factory(**dials)
    except TypeError as error:
        raise ValueError(
            f"a problem takes its dials alone, got {dials} for {problem!r}: {error}; correct them."
        ) from None


def policy_of(problem: Problem, name: str) -> TablePolicy:
    """One of `POLICIES`."""
    one_of("policy", name, tuple(POLICIES))
    share = POLICIES[name]
    start = TablePolicy(problem)
    return start if share is None else solved(start, share)


def score(
    method: str | Method,
    problem: str | Problem,
    *,
    policy: str | TablePolicy = "start",
    critic: Critic = "exact",
    updates: int = 200,
    instances: int = 4,
    seed: int = 0,
) -> Score:
    """What a method's credit is worth at a policy that stands still, by Monte Carlo against exact values.

    Args:
        method: a value, a name, one of the references, or `"module:factory"`.
        problem: a value, a name, or `"module:factory"`.
        policy: one of `POLICIES`, or a table.
        critic: of methods that ask one.
        updates: how many are played, at least 8.
        instances: task rows of an update.
        seed: of all that is drawn.

    Raises:
        ValueError: the method does not fit the problem, or an argument is out of range.
    """
    whole_number("updates", updates, 8)
    world = make_problem(problem)
    table = policy_of(world, policy) if isinstance(policy, str) else policy
    player = Player(make_method(method), world, table, critic, instances, seed)
    begun = time.process_time()
    played = [player.update() for _ in range(updates)]
    seconds = (time.process_time() - begun) / updates
    return _measured(player.truth, played, seconds)


def enumerated(
    method: str | Method,
    problem: str | Problem,
    *,
    policy: str | TablePolicy = "start",
    critic: Critic = "exact",
    instances: int = 1,
    most: int = 100_000,
) -> Score:
    """`score` exactly: one update is played in every way it can go, with everything that is drawn.

    Args:
        method, problem, policy, critic, instances: as in `score`.
        most: the ways that are played at most.

    Raises:
        ValueError: there are more, or the method draws what cannot be gone through.
    """
    world = make_problem(problem)
    table = policy_of(world, policy) if isinstance(policy, str) else policy
    made, ways, begun = make_method(method), Ways(most), time.process_time()
    truth = Truth(table)
    played = list(ways.all(lambda: Player(made, world, table, critic, instances, ways=ways, truth=truth).update()))
    true = truth.gradient.ravel()
    length = float(np.linalg.norm(true))
    unit = true / length if length else true
    shares = np.array([share for share, _ in played])
    gradients = np.stack([one.gradient.ravel() for _, one in played])
    mean = shares @ gradients
    signal = float(mean @ unit)
    tokens = float(shares @ np.array([one.tokens for _, one in played]))
    variances = [
        float(shares @ ((gradients - mean) @ unit) ** 2),
        float(shares @ ((gradients - mean) ** 2).sum(axis=1)),
    ]
    along, trace = (tokens * one / signal**2 if abs(signal) > 1e-12 else math.inf for one in variances)
    across = float(np.linalg.norm(mean - signal * unit))
    return Score(
        scale=signal / length if length else math.nan,
        angle=math.degrees(math.atan2(across, signal)) if max(across, abs(signal)) > 1e-12 else math.nan,
        angle_error=0.0,
        along=along,
        along_error=0.0,
        trace=trace,
        trace_error=0.0,
        credit_error=math.nan,
        tokens=tokens,
        updates=len(played),
        seconds=(time.process_time() - begun) / len(played),
    )


def _measured(truth: Truth, played: Sequence[Update], seconds: float) -> Score:
    count = len(played)
    true = truth.gradient.ravel()
    length = float(np.linalg.norm(true))
    unit = true / length if length else true
    gradients = np.stack([one.gradient.ravel() for one in played])
    tokens = np.array([one.tokens for one in played], dtype=float)
    mean = gradients.mean(axis=0)
    off = gradients - mean
    along = gradients @ unit
    signal = float(along.mean())
    squares = (off**2).sum(axis=1)
    # Of the mean's part across the truth, what noise alone would give is taken off.
    across = mean - signal * unit
    noise = max(float(squares.sum() - ((off @ unit) ** 2).sum()), 0.0) / (count - 1) / count
    bias = max(float(across @ across) - noise, 0.0)
    # The squared length of the mean's part across spreads by about sqrt(2 tr S^2 + 4 b' S b), S its covariance.
    covariance = off.T @ off / (count - 1) / count
    spread = math.sqrt(max(2 * float((covariance**2).sum()) + 4 * float(across @ covariance @ across), 0.0))
    angle = math.degrees(math.atan2(math.sqrt(bias), signal)) if signal or bias else math.nan
    angle_error = math.degrees(math.atan2(math.sqrt(spread), abs(signal))) if signal else math.nan
    costs = [
        _cost(tokens, (along - signal) ** 2 * count / (count - 1), along, signal, count),
        _cost(tokens, squares * count / (count - 1), along, signal, count),
    ]
    return Score(
        scale=signal / length if length else math.nan,
        angle=angle,
        angle_error=angle_error,
        along=costs[0][0],
        along_error=costs[0][1],
        trace=costs[1][0],
        trace_error=costs[1][1],
        credit_error=_credit_error(truth, played),
        tokens=float(tokens.mean()),
        updates=count,
        seconds=seconds,
    )


def _cost(tokens: Vector, squares: Vector, along: Vector, signal: float, count: int) -> tuple[float, float]:
    """Tokens x variance / signal^2, and its standard error by the delta method."""
    if not signal:
        return math.inf, math.nan
    variance, spent = float(squares.mean()), float(tokens.mean())
    cost = spent * variance / signal**2
    if not cost:
        return 0.0, 0.0
    influence = squares / variance + tokens / spent - 2 * along / signal
    return cost, cost * float(np.std(influence, ddof=1)) / math.sqrt(count)


def _credit_error(truth: Truth, played: Sequence[Update], least: int = 8) -> float:
    got: dict[tuple[Any, int, int], list[float]] = {}
    for update in played:
        for decision, credit in update.decisions:
            node = decision.state.node
            speaker = list(truth.problem.speakers(node)).index(decision.role)
            got.setdefault((node, speaker, int(decision.action_text)), []).append(credit)
    means: list[float] = []
    errors: list[float] = []
    exact: list[float] = []
    weights: list[float] = []
    for node, speaker in {(node, speaker) for node, speaker, _ in got}:
        advantages = truth.advantages(node, speaker)
        credits = [got.get((node, speaker, action), []) for action in range(len(advantages))]
        if any(len(one) < least for one in credits):
            continue
        counts = np.array([len(one) for one in credits], dtype=float)
        shares = truth.policy.of(truth.problem.view(node, truth.problem.speakers(node)[speaker]))
        middle = np.array([np.mean(one) for one in credits])
        means.extend(middle - shares @ middle)
        variances = np.array([np.var(one, ddof=1) / len(one) for one in credits])
        errors.extend(variances * (1 - 2 * shares) + shares**2 @ variances)
        exact.extend(advantages)
        weights.extend(shares * counts.sum())
    if not weights:
        return math.nan
    c, a, w, v = map(np.array, (means, exact, weights, errors))
    size = float(np.average(a**2, weights=w))
    scale = float(np.average(a * c, weights=w)) / size if size else 0.0
    if scale <= 0:
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
    """J of the policy, exactly, after each update, beside the tokens spent until then.

    Logits move by `step` times the gradient over the root of its mean square so far, all together; none moves by more
    than .5 in an update.

    Args:
        method, problem, critic, instances: as in `score`.
        seed: of all that is drawn.
        step: the length of an update, as one of `STEPS`.
        tokens: at which it ends.
    """
    world = make_problem(problem)
    player = Player(make_method(method), world, TablePolicy(world), critic, instances, derive(seed, "learning"))
    curve, spent, square = [(0, player.truth.start)], 0, 0.0
    while spent < tokens:
        update = player.update()
        spent += update.tokens
        square += (float((update.gradient**2).sum()) - square) / min(player.updates, 10)
        if square > 0:
            player.move(step * update.gradient / math.sqrt(square))
        curve.append((spent, player.truth.start))
    return curve


def area(curve: Sequence[tuple[int, float]], tokens: int, start: float, end: float) -> float:
    """The mean of J over a budget of tokens, 0 at the start's and 1 at the end's.

    Args:
        curve: of `learning`.
        tokens: the budget.
        start, end: the two values of J.
    """
    pairs = itertools.pairwise(curve)
    total = sum((min(after, tokens) - before) * value for (before, value), (after, _) in pairs if before < tokens)
    return (total / tokens - start) / (end - start)
