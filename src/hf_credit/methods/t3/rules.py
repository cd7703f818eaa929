"""Truncation rules: the progress of a step, and when to cut (paper T3, Definition 2, sections 3.1 and 3.3.3)."""

from __future__ import annotations

import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from hf_credit.boundary import Range
from hf_credit.environments.circuit_decoding import CircuitDecoding
from hf_credit.environments.guess_numbers import GuessNumbers
from hf_credit.environments.preference_estimation import SCALE, PreferenceEstimation, squared_cosine
from hf_credit.environments.randomness import stream
from hf_credit.environments.situation_puzzles import SituationPuzzles
from hf_credit.options import Count, Options, Share
from hf_credit.oracles import hypotheses
from hf_credit.registry import Registry, find
from hf_credit.rollouts import Episode, Interaction
from hf_credit.rollouts.capabilities import Acting
from hf_credit.validators import whole_number

S = TypeVar("S")


def first_cut(
    progress: Sequence[float | None], window: int, min_progress: float, consecutive: bool = True
) -> int | None:
    """Returns the first step at which a truncation rule cuts (paper T3, Def. 2).

        min { t : p[s] < min_progress for all s in (t - window, t] },   t counted from 1

    Args:
        progress: p, the progress of each step, in the unit of `min_progress`; steps with `None` are ignored.
        window: number of stalled steps after which to cut, at least 1.
        min_progress: a step stalls if its progress is below this.
        consecutive: whether stalled steps must be consecutive; if not, all of them count, as in the public code for
            CircuitDecoding.

    Returns:
        In [1, len(progress)], or `None` if the rule does not cut.

    Raises:
        ValueError: `window` is below 1, or a number is NaN.
    """
    whole_number("window", window, 1)
    if math.isnan(min_progress):
        raise ValueError("min_progress must be a number, got NaN; set the minimum progress of a step.")
    stalls = 0
    for step, value in enumerate(progress, start=1):
        if value is not None and math.isnan(value):
            raise ValueError(f"progress must be a number, got NaN at step {step}; return None if it is unknown.")
        if value is None:
            continue
        stalls = stalls + 1 if value < min_progress else stalls * (not consecutive)
        if value < min_progress and stalls >= window:
            return step
    return None


@dataclass(frozen=True, kw_only=True)
class Step(Generic[S]):
    """One turn of an episode: a step of trained roles and the replies of untrained roles that follow it.

    Attributes:
        interaction: the Interaction without truncation.
        before: its state before the step.
        replies: the replies to the requests pending in `before`.
        after: its state before the next reply of a trained role.
        turn: the number of the turn, counted from 1.
        seed: the seed of the episode, for random draws of a rule.
    """

    interaction: Interaction[S]
    before: S
    replies: tuple[str, ...]
    after: S
    turn: int
    seed: int

    @property
    def action(self) -> str:
        """The action, parsed from the first reply, in an environment."""
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
class Rule(Options, ABC):
    """Cuts an episode after too many steps with too little progress (paper T3, Def. 2).

    To define a rule, derive a frozen dataclass and implement `progress`. It must be deterministic: take random draws
    from the seed and turn of the step.

    Args:
        window, min_progress, consecutive: as for `first_cut`.

    Class attributes:
        name: the name of the rule in metrics; that of its class if empty.

    Raises:
        ValueError: `window` is below 1, or `min_progress` is no finite number.
    """

    name: ClassVar[str] = ""
    window: Count = 1
    min_progress: float = 1.0
    consecutive: bool = True

    @abstractmethod
    def progress(self, step: Step[Any]) -> float | None:
        """Returns the progress of a step after which the episode continues; `None` if it is unknown."""

    def bind(self, interaction: Interaction[Any]) -> Self:
        """Returns the rule for one Interaction.

        Raises:
            ValueError: the rule does not support it.
        """
        return self

    def stalls(self, progress: float | None) -> bool:
        """Returns whether a step with this progress stalls."""
        return progress is not None and progress < self.min_progress

    def cuts(self, progress: Sequence[float | None]) -> bool:
        """Returns whether to cut after these steps."""
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
"""The rules of this library, by name."""


make_rule = Registry[Rule]("rule", RULES, Rule, "derive it from Rule.").make


@dataclass(frozen=True, kw_only=True)
class RandomRule(Rule):
    """Cuts after each step with a constant probability (paper T3, section 3.3.3).

    Args:
        probability: beta, the probability of a cut after a step, in [0, 1].
    """

    name: ClassVar[str] = "random"
    probability: Share = 0.2

    def progress(self, step: Step[Any]) -> float:
        return float(stream(step.seed, "step", step.turn).random() >= self.probability)


@dataclass(frozen=True, kw_only=True)
class MetricRule(Rule):
    """Progress is the increase of a metric of the Interaction, such as `completion`.

    Args:
        metric: the name of the metric; without it in an Interaction no step stalls.
        falling: whether progress is the decrease instead, as for a distance.
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
    """A rule for the states of certain environments, whose classes are `tasks`."""

    tasks: ClassVar[tuple[type, ...]]

    def bind(self, interaction: Interaction[Any]) -> Self:
        if not isinstance(getattr(interaction, "environment", None), self.tasks):
            known = ", ".join(one.__name__ for one in self.tasks)
            raise ValueError(
                f"the rule {self.name!r} is for {known}, got {interaction.name!r}; use another rule, such as 'metric' "
                "or 'random'."
            )
        return self


@dataclass(frozen=True, kw_only=True)
class OutsideRule(_TaskRule):
    """A guess stalls if the earlier feedback rules it out (paper T3, section 3.1, on GuessNumbers).

    The paper equates this with a guess that leaves the number of hypotheses unchanged. They differ: a guess that is
    ruled out often leaves fewer hypotheses, and a repeated guess leaves as many. The rule `shrink` counts hypotheses.
    """

    name: ClassVar[str] = "outside"
    tasks: ClassVar[tuple[type, ...]] = (GuessNumbers,)

    def progress(self, step: Step[Any]) -> float:
        return float(hypotheses.contains(step.world_before, step.world_after.queries[-1]))


@dataclass(frozen=True, kw_only=True)
class ShrinkRule(_TaskRule):
    """Progress is the number of hypotheses that a step rules out (paper T3, section 3.1, on CircuitDecoding).

    The public code also counts stalled steps that are not consecutive: `consecutive=False`.
    """

    name: ClassVar[str] = "shrink"
    tasks: ClassVar[tuple[type, ...]] = (CircuitDecoding, GuessNumbers)
    window: Count = 3

    def progress(self, step: Step[Any]) -> float:
        return float(hypotheses.size(step.world_before) - hypotheses.size(step.world_after))


@dataclass(frozen=True, kw_only=True)
class UnknownRule(_TaskRule):
    """A question stalls if the judge answers "Unknown" (paper T3, section 3.1, on SituationPuzzles).

    A reply that the judge rejects as a question also stalls; the paper does not specify this case.
    """

    name: ClassVar[str] = "unknown"
    tasks: ClassVar[tuple[type, ...]] = (SituationPuzzles,)
    window: Count = 5

    def progress(self, step: Step[Any]) -> float:
        return float(step.world_after.replies[-1] in ("Yes", "No"))


@dataclass(frozen=True, kw_only=True)
class SimilarityRule(_TaskRule):
    """Progress is the sign of the change, from one guess to the next, of the cosine between the guess and the hidden
    preferences (paper T3, section 3.1, on PreferenceEstimation and MovieRecommendation).

    The comparison is exact, without rounding errors. Progress is unknown for the first guess, and for a zero vector
    and the guess after it, which have no cosine. An unchanged cosine does not stall; with `min_progress=1` it does.
    """

    name: ClassVar[str] = "similarity"
    tasks: ClassVar[tuple[type, ...]] = (PreferenceEstimation,)
    window: Count = 2
    min_progress: float = 0.0

    def progress(self, step: Step[Any]) -> float | None:
        world = step.world_after
        if len(world.guesses) < 2:
            return None
        before, after = (squared_cosine(guess, world.weights) for guess in world.guesses[-2:])
        return None if before is None or after is None else float((after > before) - (after < before))


@dataclass(frozen=True, kw_only=True)
class MovementRule(_TaskRule):
    """Progress is the mean distance between consecutive guesses, over the last ones (public code of paper T3, on
    PreferenceEstimation).

    Args:
        over: number of distances in the mean; with fewer, progress is unknown.
    """

    name: ClassVar[str] = "movement"
    tasks: ClassVar[tuple[type, ...]] = (PreferenceEstimation,)
    min_progress: float = 0.28
    over: Count = 4

    def progress(self, step: Step[Any]) -> float | None:
        guesses = step.world_after.guesses[-self.over - 1 :]
        if len(guesses) <= self.over:
            return None
        return sum(math.dist(*pair) for pair in itertools.pairwise(guesses)) / (self.over * SCALE)


Embedder = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Maps each text to a vector."""


@dataclass(frozen=True, kw_only=True)
class SimilarQuestionRule(_TaskRule):
    """A question stalls if it is similar to an earlier one (paper T3, section 3.3.3, on SituationPuzzles).

    Args:
        embedder: maps texts to vectors; a function, or `"module:function"`, which must be trusted code. The paper uses
            E5-large-v2.
        alpha: the cosine above which questions are similar, in [-1, 1].
    """

    name: ClassVar[str] = "similar_question"
    tasks: ClassVar[tuple[type, ...]] = (SituationPuzzles,)
    embedder: Embedder | str
    alpha: Annotated[float, Range(-1, 1)] = 0.96

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.embedder, str):
            object.__setattr__(self, "embedder", find("embedder", {}, self.embedder))

    def progress(self, step: Step[Any]) -> float:
        questions = step.world_after.queries
        if len(questions) < 2:
            return 1.0
        *earlier, last = ([float(one) for one in vector] for vector in self.embedder(questions))  # type: ignore[operator]
        return float(not any(_cosine(last, one) > self.alpha for one in earlier))


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    norms = math.hypot(*one) * math.hypot(*other)
    return sum(map(operator.mul, one, other)) / norms if norms else 0.0


def hypotheses_left(interaction: Interaction[Any], episodes: Sequence[Episode]) -> list[int]:
    """Returns the number of hypotheses before the last reply of each episode; empty if the task does not define it.

    Args:
        episodes: the episodes; those without a reply are skipped.
    """
    try:
        worlds = [Acting(interaction).action_of(one.decisions[-1].state, "")[0] for one in episodes if one.decisions]
        return [hypotheses.size(world) for world in worlds]
    except ValueError:  # not an environment, or one without a count of hypotheses
        return []
