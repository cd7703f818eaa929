"""Plays the library's own methods on a problem, with the collector, estimator and memory of training."""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, TypeVar

import numpy as np

from hf_credit.collectors import RolloutBatch, Single
from hf_credit.environments.randomness import derive, stream
from hf_credit.methods import Credit, CriticTargets, Method
from hf_credit.methods.base import weighted
from hf_credit.rollouts import Decision, Engine
from hf_credit.rollouts.method_context import CriticInput, LocalContext, Policy
from hf_credit.rollouts.rows import one_number
from hf_credit_bench.problem import Position, Problem
from hf_credit_bench.starts import perfect_starts, reverse_curriculum
from hf_credit_bench.table import TableChat, TablePolicy, TableSampler, Vector
from hf_credit_bench.truth import Truth, natural_direction

T = TypeVar("T")

Critic = Literal["exact", "noisy", "taught", "untaught"]
"""What critics predict: the exact mean of V over the nodes that fit their input; that with a fixed error; the mean of
earlier targets for the same input; or 0."""

CLIP = 0.2
"""The clip range of the probability ratio between policy and sampling policy, as in PPO."""

CRITIC_MEMORY = 32
"""The number of targets for an input that a taught critic averages before old ones decay."""

CRITIC_ERROR = 0.25
"""The standard deviation of a noisy critic's error, in units of the standard deviation of V over an episode."""


class Ways:
    """All draws of a run, to repeat the run with every possible result of the draws.

    Args:
        most: the most runs.
    """

    def __init__(self, most: int = 100_000) -> None:
        self.most = most
        self._given: list[int] = []
        self._begin()

    def _begin(self) -> None:
        self._taken: list[tuple[int, list[int]]] = []
        self._share = 1.0
        self._worlds: dict[tuple[int, int], tuple[float, float]] = {}

    def all(self, run: Callable[[], T]) -> Iterator[tuple[float, T]]:
        """Yields the probability of each combination of draws, and the result of `run` with it.

        Raises:
            ValueError: more than `most` runs are needed.
        """
        for _ in range(self.most):
            self._begin()
            result = run()
            yield self._share, result
            while self._taken and not self._taken[-1][1]:
                self._taken.pop()
            if not self._taken:
                return
            *before, (_, rest) = self._taken
            self._given = [*(place for place, _ in before), rest[0]]
        raise ValueError(
            f"the draws of an update must have at most {self.most} combinations, got more; use a shorter task."
        )

    def choose(self, probabilities: Sequence[float]) -> int:
        """Returns the index drawn in this run."""
        depth = len(self._taken)
        possible = [place for place, share in enumerate(probabilities) if share > 1e-12]
        place = self._given[depth] if depth < len(self._given) else possible[0]
        self._taken.append((place, possible[possible.index(place) + 1 :]))
        self._share *= float(probabilities[place])
        return place

    def chance(self, seed: int, step: int, probabilities: Sequence[float]) -> int:
        """Draws as `hf_credit_bench.Chance`, by one uniform number for each seed and step.

        Several episodes may use the number with different probabilities, so its range is kept.
        """
        low, high = self._worlds.get((seed, step), (0.0, 1.0))
        ends = [0.0, *itertools.accumulate(probabilities)]
        ends[-1] = 1.0
        ranges = [(max(low, start), min(high, end)) for start, end in itertools.pairwise(ends)]
        place = self.choose([max(end - start, 0.0) / (high - low) for start, end in ranges])
        self._worlds[seed, step] = ranges[place]
        return place


class _Drawn(random.Random):
    """Random numbers of a method, enumerated."""

    def __init__(self, ways: Ways, seed: int) -> None:
        super().__init__(seed)
        self._ways = ways

    def sample(self, population: Sequence[Any], k: int, *, counts: Any = None) -> list[Any]:
        every = list(itertools.combinations(population, k))
        return list(every[self._ways.choose([1 / len(every)] * len(every))])

    def choices(self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1) -> list[Any]:
        shares = [one / sum(weights) for one in weights] if weights else [1 / len(population)] * len(population)
        return [population[self._ways.choose(shares)] for _ in range(k)]

    def random(self) -> float:
        """Raises: a uniform number has too many values."""
        raise ValueError("an enumerated method must draw among few values, got one that draws a number; use score.")


@dataclass(frozen=True)
class Update:
    """One update of a method.

    Attributes:
        gradient: sum of w c grad log pi over the trained decisions, divided by the number of trained episodes, or of
            those from the start where the credit is `per_start`; of the shape of the policy's parameters.
        decisions: the trained ones, with their credit.
        tokens: generated, with those of comparison episodes.
    """

    gradient: Vector
    decisions: Sequence[tuple[Decision, float]]
    tokens: int


def bound(method: Method, problem: Problem) -> Method:
    """Returns a method bound to a problem.

    Raises:
        ValueError: the method does not fit.
    """
    method = method.bind(method.wrapped(problem))
    outputs = {spec.output for spec in method.critic_specs.values()} - {"value", "probability"}
    if outputs:
        raise ValueError(f"a critic of the bench must predict values, got {', '.join(outputs)}; use another method.")
    return method


@dataclass(frozen=True, eq=False)
class _Playing:
    """A policy, its engine, and its exact values."""

    policy: TablePolicy
    engine: Engine[Position]
    truth: Truth

    @cached_property
    def paid(self) -> Truth:
        """The exact values of its rewards."""
        return Truth(self.policy, paid=True) if self.policy.problem.hackable else self.truth


class Player:
    """Plays updates of a method in a problem.

    Args:
        method: as `hf_credit.methods.make` returns it.
        policy: of the first update.
        critic: the predictions of every critic of the method.
        instances: task rows of an update.
        ways: draws instead of the seed.
        truth: of the policy, if already computed.

    Raises:
        ValueError: the method does not fit the problem.
    """

    def __init__(
        self,
        method: Method,
        problem: Problem,
        policy: TablePolicy,
        critic: Critic = "exact",
        instances: int = 4,
        seed: int = 0,
        ways: Ways | None = None,
        truth: Truth | None = None,
    ) -> None:
        self._ways = ways
        if ways is not None:
            problem = copy.copy(problem)
            object.__setattr__(problem, "chance", ways.chance)
        self.problem, self.instances, self.seed, self.critic = problem, instances, seed, critic
        self._played = method.wrapped(problem)
        self.method = bound(method, problem)
        self.chat = TableChat(problem)
        self.memory = self.method.memory
        self.updates = 0
        # By critic and input: the mean of the targets, and their number.
        self._taught: dict[tuple[str, tuple[int, ...]], tuple[float, int]] = {}
        self._now = self._playing(policy, truth)
        self._past = deque([self._now], maxlen=problem.lag + 1)
        for _ in range(problem.lag):
            oldest = self._past[0]
            before = oldest.policy.moved(-problem.pace * natural_direction(oldest.truth))
            self._past.appendleft(self._playing(before))
        self._copy = self._now

    @property
    def truth(self) -> Truth:
        """The exact values of the learning policy."""
        return self._now.truth

    def _playing(self, policy: TablePolicy, truth: Truth | None = None) -> _Playing:
        choose = None if self._ways is None else self._ways.choose
        sampler = TableSampler(policy, derive(self.seed, "sampler", self.updates), choose)
        engine: Engine[Position] = Engine(self._played, self.chat, sampler)  # type: ignore[arg-type]
        return _Playing(policy, engine, truth or Truth(policy))

    def _learn(self, targets: Sequence[CriticTargets]) -> None:
        """Moves the predictions of a taught critic towards the targets of an update."""
        for one in targets:
            for read, wanted in zip(one.inputs, one.targets, strict=True):
                for at, target in zip(read.at, wanted, strict=True):
                    mean, seen = self._taught.get((one.critic, read.ids[:at]), (0.0, 0))
                    step = 1 / (min(seen, CRITIC_MEMORY - 1) + 1)
                    self._taught[one.critic, read.ids[:at]] = (mean + step * (target - mean), seen + 1)

    def _predict(self, name: str, output: str, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        """Predicts the return, or the probability that the copy succeeds from here, as CVT-RL's model does."""
        if self.critic == "taught":
            return [tuple(self._taught.get((name, one.ids[:at]), (0.0, 0))[0] for at in one.at) for one in inputs]
        truth = self._copy.truth if output == "probability" else self._now.paid
        spread = _spread(truth) if self.critic == "noisy" else 0.0
        clip = (0.0, 1.0) if output == "probability" else (-math.inf, math.inf)

        def value(ids: tuple[int, ...]) -> float:
            if self.critic == "untaught":
                return 0.0
            error = spread * stream(self.seed, "critic", *ids).gauss(0, CRITIC_ERROR) if spread else 0.0
            return min(max(truth.value_read(ids) + error, clip[0]), clip[1])

        return [tuple(value(one.ids[:at]) for at in one.at) for one in inputs]

    def update(self) -> Update:
        """Plays and credits one update, without a step of the policy."""
        self.updates += 1
        every, share = self.method.refresh_frozen_every, self.problem.stale
        lagging = self._past[0]
        if self.problem.lag:
            self._copy = lagging
        elif every and (self.updates - 1) % every == 0:
            self._copy = self._now
        stale = int(self.updates * share) > int((self.updates - 1) * share)
        specs = self.method.critic_specs
        names = self.method.critics or tuple(specs)
        context = BenchContext(
            (lagging if stale else self._now).engine,
            {name: partial(self._predict, name, specs[name].output if name in specs else "value") for name in names},
            seed=self.seed,
            frozen=self._copy.engine if every or self.method.frozen_decay else None,
            end_tokens=self.chat.end_tokens,
        )
        context.truth, context.update, context.ways = self.truth, self.updates, self._ways
        context.tables = {"current": self._now.policy, "frozen": self._copy.policy}
        rows = [{"seed": derive(self.seed, "task", self.updates, place)} for place in range(self.instances)]
        collected = self.method.collector(rows, context, self.memory)
        credit = self.method.estimator(collected, context, self.memory)
        self.memory = credit.memory
        if self.critic == "taught":
            self._learn(credit.critic_targets)
        return Update(*self._gradient(collected, credit), tokens=context.ledger.completion_tokens)

    def move(self, step: Vector) -> None:
        """Moves the policy's parameters."""
        self._now = self._playing(self._now.policy.moved(step))
        self._past.append(self._now)

    def _gradient(self, collected: RolloutBatch, credit: Credit) -> tuple[Vector, list[tuple[Decision, float]]]:
        policy = self._now.policy
        gradient, totals = np.zeros_like(policy.probabilities), np.zeros(len(policy.places))
        credits = weighted(credit)
        decisions = {one.id: one for episode in collected.episodes for one in episode.decisions if one.trained}
        trained = []
        for name, decision in decisions.items():
            value, counted = one_number(credit.decisions.get(name)), one_number(credits.get(name))
            if value is None or counted is None:
                continue
            place, action = decision.context_ids[-1], decision.action_ids[0] - self.chat.first_action
            assert decision.logprobs is not None
            ratio = float(policy.probabilities[place, action]) / math.exp(decision.logprobs[0])
            gradient[place, action] += (part := _clipped(counted, ratio))
            totals[place] += part
            trained.append((decision, value))
        starts = [one for one in collected.trained if not one.source] if credit.per_start else collected.episodes
        gradient -= totals[:, None] * policy.probabilities
        return policy.pulled(gradient / max(len(starts), 1)), trained


def _clipped(credit: float, ratio: float) -> float:
    """Returns the factor of grad log pi in the gradient of PPO's surrogate."""
    return 0.0 if (ratio > 1 + CLIP and credit > 0) or (ratio < 1 - CLIP and credit < 0) else ratio * credit


class BenchContext(LocalContext):
    """A local context with the exact values of the policy.

    Attributes:
        truth: of the learning policy.
        ways: draws instead of random numbers.
        tables: the policy, and the copy of it that a method keeps.
    """

    truth: Truth
    tables: Mapping[str, TablePolicy]
    ways: Ways | None = None

    def logprobs(self, decisions: Sequence[Decision], policy: Policy = "current") -> list[tuple[float, ...]]:
        """Returns the log-probabilities of the tables."""
        table, first = self.tables[policy], len(self.tables[policy].places)
        places = [(one.context_ids[-1], one.action_ids[0] - first) for one in decisions]
        return [(math.log(max(table.probabilities[place], 1e-300)),) for place in places]

    def draws(self, *purpose: int | str) -> random.Random:
        draws = super().draws(*purpose)
        return draws if self.ways is None else _Drawn(self.ways, draws.getrandbits(63))


def _advantages(collected: RolloutBatch, context: Any, memory: None = None) -> Credit:
    found = {}
    for decision in (one for episode in collected.episodes for one in episode.decisions):
        node, speaker, action = context.truth.place_of(decision)
        found[decision.id] = float(context.truth.advantages(node, speaker)[action])
    return Credit(decisions=found)


def exact_advantage() -> Method:
    """The exact advantage A(s, a), with V as baseline, which every estimator estimates."""
    return Method(name="exact_advantage", collector=Single(), estimator=_advantages)


REFERENCES: dict[str, Callable[[], Method]] = {"exact_advantage": exact_advantage, "perfect_starts": perfect_starts}
"""What no method can know."""

ARMS: dict[str, Callable[[], Method]] = {"reverse_curriculum": reverse_curriculum}
"""Ways to begin episodes, as methods of the bench."""


@lru_cache(maxsize=8)
def _spread(truth: Truth) -> float:
    shares = np.array([share for (node, before), share in truth.reached.items() if truth.problem.speakers(node)])
    values = np.array([truth.values[one] for one in truth.reached if truth.problem.speakers(one[0])])
    mean = np.average(values, weights=shares)
    return float(np.sqrt(np.average((values - mean) ** 2, weights=shares))) or abs(float(mean)) or 1.0
