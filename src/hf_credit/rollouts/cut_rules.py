"""Rules of truncation: what counts as progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hf_credit.environments.randomness import stream
from hf_credit.oracles import hypotheses
from hf_credit.registry import build
from hf_credit.rollouts.interaction import Interaction
from hf_credit.rollouts.truncation import Rule, Step

RULES = {
    "metric": "hf_credit.rollouts.cut_rules:MetricRule",
    "outside": "hf_credit.rollouts.cut_rules:OutsideRule",
    "random": "hf_credit.rollouts.cut_rules:RandomRule",
    "shrink": "hf_credit.rollouts.cut_rules:ShrinkRule",
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

    def bound_to(self, interaction: Interaction[Any]) -> Self:
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
