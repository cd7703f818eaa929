"""The library's own methods on a problem: collector, estimator and memory as they are in training."""

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

from hf_credit.bench.problem import Position, Problem
from hf_credit.bench.table import TableChat, TablePolicy, TableSampler, Vector
from hf_credit.bench.truth import Truth, natural_direction
from hf_credit.collectors import RolloutBatch, Single
from hf_credit.environments.randomness import derive, stream
from hf_credit.methods import Credit, CriticTargets, Method
from hf_credit.methods.base import weighted
from hf_credit.rollouts import Decision, Engine
from hf_credit.rollouts.method_context import CriticInput, LocalContext, Policy

T = TypeVar("T")

Critic = Literal["exact", "noisy", "taught", "untaught"]
"""Predicts the exact mean of V over what it cannot tell apart; that with a fixed error; the mean of the targets it met
there in earlier updates; or 0."""

CLIP = 0.2
"""How far the ratio of the policy to the one that played may be from 1 before a decision says no more, as in PPO."""

CRITIC_MEMORY = 32
"""Targets at one place that a taught critic averages over before the oldest fade."""

CRITIC_ERROR = 0.25
"""The standard deviation of a noisy critic's error, in units of the spread of V over what is passed."""


class Ways:
    """Everything that is drawn in a run, so that it can be run in every way in which that can fall out.

    Args:
        most: how many ways there may be.
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
        """How likely each way is, and what `run` returned in it.

        Raises:
            ValueError: there are too many.
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
            f"all that may be drawn must fall out in at most {self.most} ways, got more; take a shorter task."
        )

    def choose(self, probabilities: Sequence[float]) -> int:
        """Which of several is drawn in this run."""
        depth = len(self._taken)
        possible = [place for place, share in enumerate(probabilities) if share > 1e-12]
        place = self._given[depth] if depth < len(self._given) else possible[0]
        self._taken.append((place, possible[possible.index(place) + 1 :]))
        self._share *= float(probabilities[place])
        return place

    def chance(self, seed: int, step: int, probabilities: Sequence[float]) -> int:
        """As `hf_credit.bench.Chance`: one uniform number for each seed and step, known as far as it was asked about.

        Several walks may meet it with different probabilities, so what is kept is the range that it lies in.
        """
        low, high = self._worlds.get((seed, step), (0.0, 1.0))
        ends = [0.0, *itertools.accumulate(probabilities)]
        ends[-1] = 1.0
        ranges = [(max(low, start), min(high, end)) for start, end in itertools.pairwise(ends)]
        place = self.choose([max(end - start, 0.0) / (high - low) for start, end in ranges])
        self._worlds[seed, step] = ranges[place]
        return place


class _Drawn(random.Random):
    """Random numbers of a method, gone through."""

    def __init__(self, ways: Ways, seed: int) -> None:
        super().__init__(seed)
        self._ways = ways

    def sample(self, population: Sequence[Any], k: int, *, counts: Any = None) -> list[Any]:
        """Some of a population, in the population's order."""
        every = list(itertools.combinations(population, k))
        return list(every[self._ways.choose([1 / len(every)] * len(every))])

    def choices(self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1) -> list[Any]:
        """As many of a population, each drawn with its weight."""
        shares = [one / sum(weights) for one in weights] if weights else [1 / len(population)] * len(population)
        return [population[self._ways.choose(shares)] for _ in range(k)]

    def random(self) -> float:
        """Refused: it could be any of too many."""
        raise ValueError("a method is enumerated that draws among few, got one that draws a uniform number; score it.")


@dataclass(frozen=True)
class Update:
    """One update of a method.

    Attributes:
        gradient: sum of w c grad log pi over the trained decisions, divided by the trained episodes, or by those from
            the start where the credit is `per_start`, of the policy's shape.
        decisions: the trained ones, with their credit.
        tokens: that were generated, for comparison included.
    """

    gradient: Vector
    decisions: Sequence[tuple[Decision, float]]
    tokens: int


def bound(method: Method, problem: Problem) -> Method:
    """A method for a problem.

    Raises:
        ValueError: it does not fit.
    """
    method = method.bind(method.wrapped(problem))
    outputs = {spec.output for spec in method.critic_specs.values()} - {"value", "probability"}
    if outputs:
        raise ValueError(f"a critic of the bench says values, got one of {', '.join(outputs)}; take another method.")
    return method


@dataclass(frozen=True, eq=False)
class _Playing:
    """A policy, who plays it, and what is true of it."""

    policy: TablePolicy
    engine: Engine[Position]
    truth: Truth

    @cached_property
    def paid(self) -> Truth:
        """What is true of what it is paid."""
        return Truth(self.policy, paid=True) if self.policy.problem.hackable else self.truth


class Player:
    """Plays updates of a method in a problem.

    Args:
        method: as `hf_credit.methods.make` returns it.
        problem: that is played.
        policy: of the first update.
        critic: what every critic of the method says.
        instances: task rows of an update.
        seed: of all that is drawn.
        ways: draws in place of the seed.
        truth: of the policy, where it is known already.

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
        self._taught: dict[
            tuple[str, tuple[int, ...]], tuple[float, int]
        ] = {}  # the mean of the targets, and how many
        self._now = self._playing(policy, truth)
        self._past = deque([self._now], maxlen=problem.lag + 1)
        for _ in range(problem.lag):
            oldest = self._past[0]
            before = oldest.policy.moved(-problem.pace * natural_direction(oldest.truth))
            self._past.appendleft(self._playing(before))
        self._copy = self._now

    @property
    def truth(self) -> Truth:
        """Of the policy that learns."""
        return self._now.truth

    def _playing(self, policy: TablePolicy, truth: Truth | None = None) -> _Playing:
        choose = None if self._ways is None else self._ways.choose
        sampler = TableSampler(policy, derive(self.seed, "sampler", self.updates), choose)
        engine: Engine[Position] = Engine(self._played, self.chat, sampler)  # type: ignore[arg-type]
        return _Playing(policy, engine, truth or Truth(policy))

    def _learn(self, targets: Sequence[CriticTargets]) -> None:
        """Moves what a taught critic predicts towards the targets of an update."""
        for one in targets:
            for read, wanted in zip(one.inputs, one.targets, strict=True):
                for at, target in zip(read.at, wanted, strict=True):
                    mean, seen = self._taught.get((one.critic, read.ids[:at]), (0.0, 0))
                    step = 1 / (min(seen, CRITIC_MEMORY - 1) + 1)
                    self._taught[one.critic, read.ids[:at]] = (mean + step * (target - mean), seen + 1)

    def _says(self, name: str, output: str, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        """A value is of what is paid; a probability is of success where the copy plays on, as CVT-RL's model is."""
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
        """Plays and credits one update; the policy stays."""
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
            {name: partial(self._says, name, specs[name].output if name in specs else "value") for name in names},
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
        """Moves the logits; none by more than .5."""
        self._now = self._playing(self._now.policy.moved(step, most=0.5))
        self._past.append(self._now)

    def _gradient(self, collected: RolloutBatch, credit: Credit) -> tuple[Vector, list[tuple[Decision, float]]]:
        policy = self._now.policy
        gradient = np.zeros_like(policy.probabilities)
        credits = weighted(credit)
        decisions = {one.id: one for episode in collected.episodes for one in episode.decisions if one.trained}
        trained = []
        for name, decision in decisions.items():
            value, counted = credit.decisions.get(name), credits.get(name)
            if value is None or counted is None:
                continue
            place, action = decision.context_ids[-1], decision.action_ids[0] - self.chat.first_action
            assert decision.logprobs is not None
            ratio = float(policy.probabilities[place, action]) / math.exp(decision.logprobs[0])
            gradient[place] += _clipped(_number(counted), ratio) * policy.score(place, action)
            trained.append((decision, _number(value)))
        starts = [one for one in collected.trained if not one.source] if credit.per_start else collected.episodes
        return gradient / max(len(starts), 1), trained


def _number(credit: float | Sequence[float]) -> float:
    """The credit of a reply of one token."""
    return float(credit[0]) if isinstance(credit, Sequence) else float(credit)


def _clipped(credit: float, ratio: float) -> float:
    """The factor of grad log pi in the gradient of PPO's surrogate."""
    return 0.0 if (ratio > 1 + CLIP and credit > 0) or (ratio < 1 - CLIP and credit < 0) else ratio * credit


class BenchContext(LocalContext):
    """As without a trainer, with what is true of the policy at hand.

    Attributes:
        truth: of the policy that learns.
        ways: who draws in place of random numbers.
        tables: the policy and the copy of it that a method keeps.
    """

    truth: Truth
    tables: Mapping[str, TablePolicy]
    ways: Ways | None = None

    def logprobs(self, decisions: Sequence[Decision], policy: Policy = "current") -> list[tuple[float, ...]]:
        """As the tables have them."""
        table, first = self.tables[policy], len(self.tables[policy].places)
        places = [(one.context_ids[-1], one.action_ids[0] - first) for one in decisions]
        return [(math.log(max(table.probabilities[place], 1e-300)),) for place in places]

    def draws(self, *purpose: int | str) -> random.Random:
        """As without a trainer, or gone through."""
        drawn = super().draws(*purpose)
        return drawn if self.ways is None else _Drawn(self.ways, drawn.getrandbits(63))


@dataclass(frozen=True, kw_only=True)
class _TrueCredit:
    """The credit of a decision from what is true: a reference that no estimator has."""

    credit: Callable[[Truth, Decision], float]

    def __call__(self, collected: RolloutBatch, context: Any, memory: None = None) -> Credit:
        given = {
            one.id: self.credit(context.truth, one) for episode in collected.episodes for one in episode.decisions
        }
        return Credit(decisions=given)


def _advantage(truth: Truth, decision: Decision) -> float:
    node, speaker, action = truth.place_of(decision)
    return float(truth.advantages(node, speaker)[action])


def exact_advantage() -> Method:
    """The exact advantage A(s, a), with V as its baseline: what every estimator estimates."""
    return Method(name="exact_advantage", collector=Single(), estimator=_TrueCredit(credit=_advantage))


def constant() -> Method:
    """The same credit for everything, which has no signal."""
    return Method(name="constant", collector=Single(), estimator=_TrueCredit(credit=lambda truth, decision: 1.0))


REFERENCES: Mapping[str, Callable[[], Method]] = {"exact_advantage": exact_advantage, "constant": constant}


@lru_cache(maxsize=8)
def _spread(truth: Truth) -> float:
    shares = np.array([share for (node, before), share in truth.reached.items() if truth.problem.speakers(node)])
    values = np.array([truth.values[one] for one in truth.reached if truth.problem.speakers(one[0])])
    mean = np.average(values, weights=shares)
    return float(np.sqrt(np.average((values - mean) ** 2, weights=shares))) or abs(float(mean)) or 1.0
