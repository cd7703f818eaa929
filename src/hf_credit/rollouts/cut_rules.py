"""Rules of truncation: what counts as progress."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

from hf_credit.environments.preference_estimation import SCALE
from hf_credit.environments.randomness import stream
from hf_credit.oracles import hypotheses
from hf_credit.registry import build, find
from hf_credit.rollouts.interaction import Interaction
from hf_credit.rollouts.truncation import Rule, Step

RULES = {
    "metric": "hf_credit.rollouts.cut_rules:MetricRule",
    "movement": "hf_credit.rollouts.cut_rules:MovementRule",
    "outside": "hf_credit.rollouts.cut_rules:OutsideRule",
    "random": "hf_credit.rollouts.cut_rules:RandomRule",
    "shrink": "hf_credit.rollouts.cut_rules:ShrinkRule",
    "similar_question": "hf_credit.rollouts.cut_rules:SimilarQuestionRule",
    "similarity": "hf_credit.rollouts.cut_rules:SimilarityRule",
    "unknown": "hf_credit.rollouts.cut_rules:UnknownRule",
}
"""Those of this library, as for `make_rule`."""


def make_rule(name: str, **options: Any) -> Rule:
    """The rule called `name`, with its options.

    Args:
        name: one of `RULES`, the entry point of an installed package in the group `hf_credit.rules`, or
            `"package.module:factory"`, which is imported and must be code that you trust.
        **options: of the rule.

    Raises:
        ValueError: the name, an option or an option's value is not possible, in one sentence.
    """
    rule = build("rule", RULES, name, options)
    if not isinstance(rule, Rule):
        raise ValueError(
            f"a rule must be a hf_credit.rollouts.Rule, got a {type(rule).__name__} from {name!r}; derive yours from "
            "it."
        )
    return rule


@dataclass(frozen=True, kw_only=True)
class RandomRule(Rule):
    """Cuts after each step with one probability, whatever was done there (paper T3, section 3.3.3).

    Args:
        probability: of a cut after a step, in [0, 1]; beta in the paper.
    """

    name: ClassVar[str] = "random"
    probability: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must be in [0, 1], got {self.probability}; the paper tries .1 to .8.")

    def progress(self, step: Step[Any]) -> float:
        return float(stream(step.seed, "step", step.turn).random() >= self.probability)


@dataclass(frozen=True, kw_only=True)
class MetricRule(Rule):
    """Progress is what a step added to a metric of the Interaction, such as `completion`.

    Args:
        metric: its name; where an Interaction does not report it, no step stalls.
        falling: whether less of it is progress, such as of a distance.
    """

    name: ClassVar[str] = "metric"
    metric: str
    falling: bool = False
    min_progress: float = 1e-9

    def progress(self, step: Step[Any]) -> float | None:
        before, after = (step.interaction.metrics(state).get(self.metric) for state in (step.before, step.after))
        if before is None or after is None:
            return None
        return before - after if self.falling else after - before


@dataclass(frozen=True, kw_only=True)
class _TaskRule(Rule):
    """A rule that reads the states of some environments.

    Class attributes:
        tasks: their classes, as `"module:class"`.
    """

    tasks: ClassVar[tuple[str, ...]]

    def bind(self, interaction: Interaction[Any]) -> Self:
        environment = getattr(interaction, "environment", None)
        own = {f"{one.__module__}:{one.__qualname__}" for one in type(environment).__mro__}
        if not own & set(self.tasks):
            known = ", ".join(one.rpartition(":")[2] for one in self.tasks)
            raise ValueError(
                f"the rule {self.name!r} is for {known}, got {interaction.name!r}; take another, such as 'metric' or "
                "'random'."
            )
        return self


_GUESSES = "hf_credit.environments.guess_numbers:GuessNumbers"
_CIRCUITS = "hf_credit.environments.circuit_decoding:CircuitDecoding"
_PREFERENCES = "hf_credit.environments.preference_estimation:PreferenceEstimation"
_PUZZLES = "hf_credit.environments.situation_puzzles:SituationPuzzles"


@dataclass(frozen=True, kw_only=True)
class OutsideRule(_TaskRule):
    """Stalled is a guess that the feedback before it rules out (paper T3, section 3.1, on GuessNumbers).

    The paper takes that for a guess which leaves as many hypotheses as there were, and it is not: many such guesses
    leave fewer, and a right guess made again leaves as many and is possible. `shrink` counts them.
    """

    name: ClassVar[str] = "outside"
    tasks: ClassVar[tuple[str, ...]] = (_GUESSES,)

    def progress(self, step: Step[Any]) -> float:
        return float(hypotheses.contains(step.world_before, step.world_after.queries[-1]))


@dataclass(frozen=True, kw_only=True)
class ShrinkRule(_TaskRule):
    """Progress is how many hypotheses a step rules out (paper T3, section 3.1, on CircuitDecoding).

    The public code counts stalls that are not in a row too: `consecutive=False`.
    """

    name: ClassVar[str] = "shrink"
    tasks: ClassVar[tuple[str, ...]] = (_CIRCUITS, _GUESSES)
    window: int = 3

    def progress(self, step: Step[Any]) -> float:
        return float(hypotheses.size(step.world_before) - hypotheses.size(step.world_after))


@dataclass(frozen=True, kw_only=True)
class UnknownRule(_TaskRule):
    """Stalled is a question that the judge knows no answer to (paper T3, section 3.1, on SituationPuzzles).

    What the judge says is no question is stalled as well; the paper does not say.
    """

    name: ClassVar[str] = "unknown"
    tasks: ClassVar[tuple[str, ...]] = (_PUZZLES,)
    window: int = 5

    def progress(self, step: Step[Any]) -> float:
        return float(step.world_after.replies[-1] in ("Yes", "No"))


@dataclass(frozen=True, kw_only=True)
class SimilarityRule(_TaskRule):
    """Progress is how much nearer a guess is to the hidden preferences than the guess before it, as the sign of the
    change of their cosine (paper T3, section 3.1, on PreferenceEstimation and MovieRecommendation).

    It is worked out exactly: equal guesses are a tie, and no rounding makes one a fall. Of the first guess nothing can
    be said, nor of a guess of zeros or the one after it, which have no cosine.

    A tie is no fall, so it does not stall; with `min_progress=1` it does.
    """

    name: ClassVar[str] = "similarity"
    tasks: ClassVar[tuple[str, ...]] = (_PREFERENCES,)
    window: int = 2
    min_progress: float = 0.0

    def progress(self, step: Step[Any]) -> float | None:
        world = step.world_after
        if len(world.guesses) < 2:
            return None
        before, after = (_squared_cosine(guess, world.weights) for guess in world.guesses[-2:])
        return None if before is None or after is None else float((after > before) - (after < before))


def _squared_cosine(guess: Sequence[int], weights: Sequence[int]) -> Fraction | None:
    """The square of the cosine of two vectors without negative numbers, which rises with it; `None` of a zero one."""
    norms = sum(one * one for one in guess) * sum(one * one for one in weights)
    dot = sum(one * other for one, other in zip(guess, weights, strict=True))
    return Fraction(dot * dot, norms) if norms else None


@dataclass(frozen=True, kw_only=True)
class MovementRule(_TaskRule):
    """Progress is how far the guess has moved of late: the mean length of its last steps (the public code of paper T3,
    on PreferenceEstimation).

    Args:
        over: how many steps the mean is taken over; of fewer nothing can be said.
    """

    name: ClassVar[str] = "movement"
    tasks: ClassVar[tuple[str, ...]] = (_PREFERENCES,)
    min_progress: float = 0.28
    over: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.over < 1:
            raise ValueError(f"over must be at least 1 step, got {self.over}; the public code has 4.")

    def progress(self, step: Step[Any]) -> float | None:
        guesses = step.world_after.guesses[-self.over - 1 :]
        if len(guesses) <= self.over:
            return None
        return sum(math.dist(*pair) for pair in itertools.pairwise(guesses)) / (self.over * SCALE)


Embedder = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""From texts to a vector each."""


@dataclass(frozen=True, kw_only=True)
class SimilarQuestionRule(_TaskRule):
    """Stalled is a question that is nearly one of those before it (paper T3, section 3.3.3, on SituationPuzzles).

    Args:
        embedder: from texts to vectors, or the `"module:function"` of one, which must be code that you trust. The
            paper takes E5-large-v2.
        alpha: the cosine above which two questions are alike, in [-1, 1].
    """

    name: ClassVar[str] = "similar_question"
    tasks: ClassVar[tuple[str, ...]] = (_PUZZLES,)
    embedder: Embedder | str
    alpha: float = 0.96

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -1 <= self.alpha <= 1:
            raise ValueError(f"alpha must be in [-1, 1], got {self.alpha}; the paper tries .9, .93 and .96.")
        if isinstance(self.embedder, str):
            object.__setattr__(self, "embedder", find("embedder", {}, self.embedder))

    def progress(self, step: Step[Any]) -> float:
        questions = step.world_after.queries
        if len(questions) < 2:
            return 1.0
        *earlier, last = ([float(one) for one in vector] for vector in self.embedder(questions))  # type: ignore[operator]
        return float(not any(_cosine(last, one) > self.alpha for one in earlier))


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Of two vectors; 0 where one is zero."""
    norms = math.hypot(*one) * math.hypot(*other)
    return sum(map(operator.mul, one, other)) / norms if norms else 0.0
