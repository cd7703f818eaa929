"""Truncation rules: when to cut, and what counts as progress (paper T3, Definition 2, sections 3.1 and 3.3.3)."""

from __future__ import annotations

import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Generic, Self, TypeVar

from hf_credit.environments.preference_estimation import SCALE
from hf_credit.environments.randomness import stream
from hf_credit.oracles import hypotheses
from hf_credit.registry import build, find
from hf_credit.rollouts import Episode, Interaction
from hf_credit.rollouts.capabilities import Acting
from hf_credit.validators import finite_number, whole_number

S = TypeVar("S")


def first_cut(
    progress: Sequence[float | None], window: int, min_progress: float, consecutive: bool = True
) -> int | None:
    """The first step at which a truncation rule cuts (paper T3, Def. 2).

        min { t : p[s] < min_progress for all s in (t - window, t] },   t counted from 1

    Args:
        progress: of each step so far, in the unit of `min_progress`; `None` if unknown, which does not count as a
            step.
        window: number of steps that must stall, at least 1.
        min_progress: minimum progress of a step that does not stall.
        consecutive: whether they must be the last ones. If not, all stalls so far count, as in the public code for
            circuits.

    Returns:
        In [1, len(progress)], or `None` if no step cuts.

    Raises:
        ValueError: `window` is below 1, or a number is NaN.
    """
    _refuse_window(window, min_progress)
    stalls = 0
    for step, value in enumerate(progress, start=1):
        if value is not None and math.isnan(value):
            raise ValueError(f"progress must be a number, got NaN at step {step}; say None where nothing can be said.")
        if value is None:
            continue
        stalls = stalls + 1 if value < min_progress else stalls * (not consecutive)
        if value < min_progress and stalls >= window:
            return step
    return None


def _refuse_window(window: int, min_progress: float) -> None:
    whole_number("the window of a rule", window, 1)
    if math.isnan(min_progress):
        raise ValueError("min_progress must be a number, got NaN; say what a step must reach.")


@dataclass(frozen=True, kw_only=True)
class Step(Generic[S]):
    """One turn of an episode, as a rule sees it: a step, with the replies of untrained roles to it.

    Attributes:
        interaction: the Interaction, uncut.
        before: its state before the step.
        replies: to what was pending there.
        after: its state when a trained role is to reply again.
        turn: number of the turn, counted from 1.
        seed: of the episode, for random draws of a rule.
    """

    interaction: Interaction[S]
    before: S
    replies: tuple[str, ...]
    after: S
    turn: int
    seed: int

    @property
    def action(self) -> str:
        """The plain action, in an environment."""
        return Acting(self.interaction).action_of(self.before, self.replies[0])[1]

    @property
    def world_before(self) -> Any:
        """The environment's state before the step."""
        return Acting(self.interaction).action_of(self.before, "")[0]

    @property
    def world_after(self) -> Any:
        """The environment's state after the step."""
        return Acting(self.interaction).action_of(self.after, "")[0]


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """When to cut: after too many steps made too little progress (paper T3, Def. 2).

    Your own rule is a frozen dataclass that defines the progress of a step. It is a value: its random draws come from
    the step's seed and turn.

    Args:
        window, min_progress, consecutive: as for `first_cut`.

    Class attributes:
        name: its name in the log; its class if empty.

    Raises:
        ValueError: `window` is below 1, or `min_progress` is NaN.
    """

    name: ClassVar[str] = ""
    window: int = 1
    min_progress: float = 1.0
    consecutive: bool = True

    def __post_init__(self) -> None:
        _refuse_window(self.window, self.min_progress)

    @abstractmethod
    def progress(self, step: Step[Any]) -> float | None:
        """The progress of a step; `None` if unknown.

        It is called on steps after which the episode continues, not on an answer or an invalid reply.
        """

    def bind(self, interaction: Interaction[Any]) -> Self:
        """The rule for one Interaction.

        Raises:
            ValueError: it is a rule for another task.
        """
        return self

    def stalls(self, progress: float | None) -> bool:
        """Whether a step of this progress stalled."""
        return progress is not None and progress < self.min_progress

    def cuts(self, progress: Sequence[float | None]) -> bool:
        """Whether to cut after the last of these steps, without a cut before."""
        return first_cut(progress, self.window, self.min_progress, self.consecutive) is not None


RULES = {
    "metric": "hf_credit.methods.t3.rules:MetricRule",
    "movement": "hf_credit.methods.t3.rules:MovementRule",
    "outside": "hf_credit.methods.t3.rules:OutsideRule",
    "random": "hf_credit.methods.t3.rules:RandomRule",
    "shrink": "hf_credit.methods.t3.rules:ShrinkRule",
    "similar_question": "hf_credit.methods.t3.rules:SimilarQuestionRule",
    "similarity": "hf_credit.methods.t3.rules:SimilarityRule",
    "unknown": "hf_credit.methods.t3.rules:UnknownRule",
}
"""The rules of this library, as for `make_rule`."""


def make_rule(name: str, **options: Any) -> Rule:
    """The rule called `name`, with its options.

    Args:
        name: one of `RULES`, the entry point of an installed package in the group `hf_credit.rules`, or
            `"package.module:factory"`, which is imported and must be code that you trust.
        **options: of the rule.

    Raises:
        ValueError: the name, an option or its value is invalid, in one sentence.
    """
    rule = build("rule", RULES, name, options)
    if not isinstance(rule, Rule):
        raise ValueError(
            f"a rule must be a hf_credit.methods.t3.Rule, got a {type(rule).__name__} from {name!r}; derive yours "
            "from it."
        )
    return rule


@dataclass(frozen=True, kw_only=True)
class RandomRule(Rule):
    """Cuts after each step with one probability, independently of the step (paper T3, section 3.3.3).

    Args:
        probability: of a cut after a step, in [0, 1]; beta in the paper.
    """

    name: ClassVar[str] = "random"
    probability: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        finite_number("probability", self.probability, 0, most=1)

    def progress(self, step: Step[Any]) -> float:
        return float(stream(step.seed, "step", step.turn).random() >= self.probability)


@dataclass(frozen=True, kw_only=True)
class MetricRule(Rule):
    """Progress is the increase of a metric of the Interaction, such as `completion`.

    Args:
        metric: its name; if an Interaction does not report it, no step stalls.
        falling: whether a decrease is progress, such as for a distance.
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
        classes = {f"{one.__module__}:{one.__qualname__}" for one in type(environment).__mro__}
        if not classes & set(self.tasks):
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
    """A guess stalls if the earlier feedback rules it out (paper T3, section 3.1, on GuessNumbers).

    The paper identifies this with a guess that leaves the number of hypotheses unchanged, but they differ: many such
    guesses leave fewer, and a possible guess made again leaves the number unchanged. `shrink` counts them.
    """

    name: ClassVar[str] = "outside"
    tasks: ClassVar[tuple[str, ...]] = (_GUESSES,)

    def progress(self, step: Step[Any]) -> float:
        return float(hypotheses.contains(step.world_before, step.world_after.queries[-1]))


@dataclass(frozen=True, kw_only=True)
class ShrinkRule(_TaskRule):
    """Progress is the number of hypotheses that a step rules out (paper T3, section 3.1, on CircuitDecoding).

    The public code also counts stalls that are not consecutive: `consecutive=False`.
    """

    name: ClassVar[str] = "shrink"
    tasks: ClassVar[tuple[str, ...]] = (_CIRCUITS, _GUESSES)
    window: int = 3

    def progress(self, step: Step[Any]) -> float:
        return float(hypotheses.size(step.world_before) - hypotheses.size(step.world_after))


@dataclass(frozen=True, kw_only=True)
class UnknownRule(_TaskRule):
    """A question stalls if the judge has no answer to it (paper T3, section 3.1, on SituationPuzzles).

    A reply that the judge rejects as a question stalls as well; the paper does not specify this.
    """

    name: ClassVar[str] = "unknown"
    tasks: ClassVar[tuple[str, ...]] = (_PUZZLES,)
    window: int = 5

    def progress(self, step: Step[Any]) -> float:
        return float(step.world_after.replies[-1] in ("Yes", "No"))


@dataclass(frozen=True, kw_only=True)
class SimilarityRule(_TaskRule):
    """Progress is the sign of the change of the cosine between a guess and the hidden preferences, from the guess
    before it (paper T3, section 3.1, on PreferenceEstimation and MovieRecommendation).

    The computation is exact: equal guesses are a tie, without rounding errors. Progress is unknown for the first
    guess, and for a guess of zeros and the one after it, which have no cosine.

    A tie is not a decrease, so it does not stall; with `min_progress=1` it does.
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
    """The square of the cosine of two non-negative vectors, monotone in the cosine; `None` for a zero vector."""
    norms = sum(one * one for one in guess) * sum(one * one for one in weights)
    dot = sum(one * other for one, other in zip(guess, weights, strict=True))
    return Fraction(dot * dot, norms) if norms else None


@dataclass(frozen=True, kw_only=True)
class MovementRule(_TaskRule):
    """Progress is the recent movement of the guess: the mean length of its last steps (the public code of paper T3, on
    PreferenceEstimation).

    Args:
        over: number of steps of the mean; with fewer, progress is unknown.
    """

    name: ClassVar[str] = "movement"
    tasks: ClassVar[tuple[str, ...]] = (_PREFERENCES,)
    min_progress: float = 0.28
    over: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("over", self.over, 1)

    def progress(self, step: Step[Any]) -> float | None:
        guesses = step.world_after.guesses[-self.over - 1 :]
        if len(guesses) <= self.over:
            return None
        return sum(math.dist(*pair) for pair in itertools.pairwise(guesses)) / (self.over * SCALE)


Embedder = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Maps texts to one vector each."""


@dataclass(frozen=True, kw_only=True)
class SimilarQuestionRule(_TaskRule):
    """A question stalls if it is similar to an earlier one (paper T3, section 3.3.3, on SituationPuzzles).

    Args:
        embedder: from texts to vectors, or the `"module:function"` of one, which must be code that you trust. The
            paper uses E5-large-v2.
        alpha: the cosine above which two questions are similar, in [-1, 1].
    """

    name: ClassVar[str] = "similar_question"
    tasks: ClassVar[tuple[str, ...]] = (_PUZZLES,)
    embedder: Embedder | str
    alpha: float = 0.96

    def __post_init__(self) -> None:
        super().__post_init__()
        finite_number("alpha", self.alpha, -1, most=1)
        if isinstance(self.embedder, str):
            object.__setattr__(self, "embedder", find("embedder", {}, self.embedder))

    def progress(self, step: Step[Any]) -> float:
        questions = step.world_after.queries
        if len(questions) < 2:
            return 1.0
        *earlier, last = ([float(one) for one in vector] for vector in self.embedder(questions))  # type: ignore[operator]
        return float(not any(_cosine(last, one) > self.alpha for one in earlier))


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of two vectors; 0 if one is zero."""
    norms = math.hypot(*one) * math.hypot(*other)
    return sum(map(operator.mul, one, other)) / norms if norms else 0.0


def hypotheses_left(interaction: Interaction[Any], episodes: Sequence[Episode]) -> list[int]:
    """Number of hypotheses possible before the last reply of each episode, in tasks where it is known.

    Args:
        interaction: that was played.
        episodes: those without a reply are skipped.
    """
    try:
        worlds = [Acting(interaction).action_of(one.decisions[-1].state, "")[0] for one in episodes if one.decisions]
        return [hypotheses.size(world) for world in worlds]
    except ValueError:  # no environment, or one whose hypotheses nobody counts
        return []
