"""Audits of single steps, and interventions that replace a step (paper CVT-RL, sections 3.1 and 3.2)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from hf_credit.environments.base import State

S_contra = TypeVar("S_contra", bound=State, contravariant=True)

Distribution = tuple[float, ...]

AUDIT = "audit"
"""The key of a decision's `Audit` in its `extras`."""
VERIFIED = "verified"
"""The key of Y in the `extras` of an episode: its success according to an auditor, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """An auditor's judgement of one step.

    Attributes:
        kind: of the action, such as `"think"`, `"search"`, `"read"`, `"verify"` or `"final"`; empty if the reply has
            no action.
        arguments: of the action, by name.
        tool_call: whether it called a tool.
        final: whether it answers, which ends the episode.
        costs: by name, each at least 0; an absent name costs nothing.
        hacks: by category, the detector's score that the step is a hack of that kind, in [0, 1].
        true_hacks: the true categories, if the environment knows them; for diagnosis, never for reward.
        evidence: the F1 of the documents that the answer cites and those that support it, in [0, 1]; `None` for steps
            without an answer.
        entailment: whether the evidence entails the answer, in [0, 1]; `None` for steps without an answer.
        uncertainty: the verifier's, before and after the step, in [0, 1].
        beliefs: for each slot, the distribution that the transcript before this step implies.

    Raises:
        ValueError: a cost is negative, a share is outside [0, 1], or a belief is not a distribution.
    """

    kind: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tool_call: bool = False
    final: bool = False
    costs: Mapping[str, float] = field(default_factory=dict)
    hacks: Mapping[str, float] = field(default_factory=dict)
    true_hacks: frozenset[str] = frozenset()
    evidence: float | None = None
    entailment: float | None = None
    uncertainty: tuple[float, float] = (1.0, 1.0)
    beliefs: Mapping[str, Distribution] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, cost in self.costs.items():
            if not (math.isfinite(cost) and cost >= 0):
                raise ValueError(f"a cost must be at least 0, got {cost} of {name!r}; correct the auditor.")
        shares: dict[str, float | None] = {f"hack score of {name!r}": score for name, score in self.hacks.items()}
        shares |= {"uncertainty": self.uncertainty[0], "uncertainty after the step": self.uncertainty[1]}
        shares |= {"evidence": self.evidence, "entailment": self.entailment}
        for name, share in shares.items():
            if share is not None and not 0 <= share <= 1:
                raise ValueError(f"an audit's {name} must be in [0, 1], got {share}; scale it.")
        for slot, belief in self.beliefs.items():
            if not all(share >= 0 for share in belief) or not math.isclose(sum(belief), 1, abs_tol=1e-6):
                raise ValueError(
                    f"a belief must be a distribution (at least 0, sum 1), got {belief} for the slot {slot!r}; "
                    "normalise it."
                )


@runtime_checkable
class Auditor(Protocol[S_contra]):
    """Judges steps by records that the agent cannot change. Any object with these members is an auditor.

    Attributes:
        costs: the names of all costs, in display order.
        categories: of hacks, in order.
        slots: of beliefs, with the number of values of each.
    """

    costs: tuple[str, ...]
    categories: tuple[str, ...]
    slots: Mapping[str, int]

    def audit(self, state: S_contra, action: str) -> Audit:
        """Audits a plain action, empty if the reply has none, in a state of the environment."""

    def success(self, state: S_contra) -> float:
        """Returns Y, whether a finished episode that ended in `state` is a verified success, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """An intervention's replacement of a step: another action, or the same action with another effect.

    Attributes:
        action: the plain action; the one taken, if the family alters only the effect.
        state: the altered state of the environment after the step; `None` to apply the rules to `action`.
        text: the whole reply; the environment's own notation of `action` if `None`.
    """

    action: str
    state: Any = None
    text: str | None = None


@runtime_checkable
class Interventions(Protocol[S_contra]):
    """Minimal alternatives to a step, by family. A family applies depending only on state and action.

    Attributes:
        families: their names, in order.
    """

    families: tuple[str, ...]

    def applies(self, state: S_contra, action: str, family: str) -> bool:
        """Returns whether the family has a replacement for a plain action."""

    def propose(self, state: S_contra, action: str, family: str, draws: random.Random) -> Proposal:
        """Draws a proposal of a family that applies."""

    def evidence(self, state: S_contra) -> str:
        """Returns the text of all evidence retrieved so far, which a gate compares proposals with."""


@runtime_checkable
class EnumerableInterventions(Interventions[S_contra], Protocol[S_contra]):
    """Interventions that can list their proposals, which makes exact effects computable."""

    def proposals(self, state: S_contra, action: str, family: str) -> Sequence[tuple[float, Proposal]]:
        """Returns all proposals of a family that applies, with their probabilities, which sum to 1."""
