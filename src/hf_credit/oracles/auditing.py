"""What an auditor says of single steps, and what may be put in a step's place (paper CVT-RL, sections 3.1 and 3.2)."""

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
"""Where the `extras` of a decision hold its `Audit`."""
VERIFIED = "verified"
"""Where the `extras` of an episode hold Y, whether an auditor takes it for a success, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an auditor says of one step.

    Attributes:
        kind: of the action, such as `"think"`, `"search"`, `"read"`, `"verify"` or `"final"`; empty where the reply
            held none.
        arguments: of the action, by name.
        tool_call: whether it called a tool.
        final: whether it gives the answer, which ends the episode.
        costs: by name, each at least 0; a name that is left out costs nothing.
        hacks: by category, how surely a detector takes the step for a hack of that kind, in [0, 1].
        true_hacks: the categories it really is, where the world knows; for diagnosis, never for reward.
        evidence: how well what the answer rests on agrees with what it should, the harmonic mean of precision and
            recall, in [0, 1]; `None` of steps that give no answer.
        entailment: whether the evidence entails the answer, in [0, 1]; `None` likewise.
        uncertainty: the verifier's, before and after the step, in [0, 1].
        beliefs: for each slot, what the transcript up to this step implies, each a distribution.

    Raises:
        ValueError: a cost is negative, a share outside [0, 1], or a belief no distribution.
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
                raise ValueError(f"a cost must be at least 0, got {cost} of {name!r}; audit what a step costs.")
        shares = {f"hack score of {name!r}": score for name, score in self.hacks.items()}
        shares |= {"uncertainty": self.uncertainty[0], "uncertainty after the step": self.uncertainty[1]}
        shares |= {"evidence": self.evidence or 0.0, "entailment": self.entailment or 0.0}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"an audit's {name} must be in [0, 1], got {share}; scale it.")
        for slot, belief in self.beliefs.items():
            if not all(share >= 0 for share in belief) or not math.isclose(sum(belief), 1, abs_tol=1e-6):
                raise ValueError(
                    f"a belief must be a distribution, shares of at least 0 that sum to 1, got {belief} for the slot "
                    f"{slot!r}; normalise it."
                )


@runtime_checkable
class Auditor(Protocol[S_contra]):
    """Judges steps by a record that the agent cannot touch. Any object with these members is an auditor.

    Attributes:
        costs: the names of all costs, in the order in which they are shown.
        categories: of hacks, in order.
        slots: of beliefs: for each how many values it has.
    """

    costs: tuple[str, ...]
    categories: tuple[str, ...]
    slots: Mapping[str, int]

    def audit(self, state: S_contra, action: str) -> Audit:
        """What it says of a plain action, empty where the reply held none, in a state of the environment."""

    def success(self, state: S_contra) -> float:
        """Y, whether a finished episode that ended in `state` is a verified success, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What an intervention puts in the place of a step: another action, or the same with another effect.

    Attributes:
        action: the plain action; of a family that alters the effect, the one that was taken.
        state: the altered state of the environment after the step; `None` where the rules say what comes of `action`.
        text: the words of the whole reply, where they matter; the environment's own way of writing `action` if `None`.
    """

    action: str
    state: Any = None
    text: str | None = None


@runtime_checkable
class Interventions(Protocol[S_contra]):
    """Minimal alternatives to a step, by family. Whether a family applies depends on state and action only.

    Attributes:
        families: their names, in order.
    """

    families: tuple[str, ...]

    def applies(self, state: S_contra, action: str, family: str) -> bool:
        """Whether the family has something to put in the place of a plain action."""

    def propose(self, state: S_contra, action: str, family: str, draws: random.Random) -> Proposal:
        """Draws one; asked only where the family applies."""

    def evidence(self, state: S_contra) -> str:
        """The text of all evidence retrieved so far, which a gate compares proposals with."""


@runtime_checkable
class EnumerableInterventions(Interventions[S_contra], Protocol[S_contra]):
    """Interventions that can list what they may propose, so that exact effects can be had."""

    def proposals(self, state: S_contra, action: str, family: str) -> Sequence[tuple[float, Proposal]]:
        """All that a family that applies may propose: probabilities, which sum to 1, and proposals."""
