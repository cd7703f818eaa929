"""Audits of single steps, and interventions that replace a step, also by name (paper CVT-RL, sections 3.1 and 3.2)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from hf_credit.environments import Environment
from hf_credit.environments.base import State
from hf_credit.oracles.base import first_move
from hf_credit.registry import Registry

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


AUDITORS = {
    "evidence": "hf_credit.oracles.evidence_audit:EvidenceAuditor",
    "evidence_learned": "hf_credit.oracles.hack_detector:learned_evidence_auditor",
}
INTERVENTIONS = {"evidence": "hf_credit.oracles.evidence_audit:EvidenceInterventions"}

AuditorLike = Auditor[Any] | str | Mapping[str, Any]
"""The argument of `resolve_auditor`: an auditor, its name, or a mapping of its `name` and `options`."""

InterventionsLike = Interventions[Any] | str | Mapping[str, Any]
"""The argument of `resolve_interventions`: interventions, their name, or a mapping of their `name` and `options`."""


_AUDITORS = Registry[Auditor[Any]](
    "auditor", AUDITORS, Auditor, "give it audit, success, costs, categories and slots."
)
_INTERVENTIONS = Registry[Interventions[Any]](
    "intervention", INTERVENTIONS, Interventions, "give it families, applies, propose and evidence."
)
resolve_auditor, resolve_interventions = _AUDITORS.resolve, _INTERVENTIONS.resolve


def spec(part: Auditor[Any] | Interventions[Any]) -> dict[str, Any]:
    """Returns the `name` and `options` from which `resolve_auditor` or `resolve_interventions` rebuilds a part.

    Raises:
        ValueError: as for `hf_credit.environments.spec`.
    """
    name, options = _AUDITORS.spec(part) if isinstance(part, Auditor) else _INTERVENTIONS.spec(part)
    return {"name": name, "options": options}


def default_auditor(environment: Environment[Any]) -> Auditor[Any] | None:
    """Returns the auditor of an environment of this library, without noise.

    For any other environment it returns the result of the environment's method `default_auditor()`, or `None`.
    """
    if environment.name == "evidence":
        return resolve_auditor({"name": "evidence", "options": {"documents": environment.documents}})  # type: ignore[attr-defined]
    return getattr(environment, "default_auditor", lambda: None)()


def default_interventions(environment: Environment[Any]) -> Interventions[Any] | None:
    """Returns the interventions of an environment of this library.

    For any other environment it returns the result of the environment's method `default_interventions()`, or `None`.
    """
    if environment.name in INTERVENTIONS:
        return resolve_interventions(environment.name)
    return getattr(environment, "default_interventions", lambda: None)()


def require_auditor_fit(auditor: Auditor[Any], environment: Environment[Any]) -> None:
    """Refuses an auditor that cannot audit the first legal action of one task of an environment.

    Raises:
        ValueError: it is made for another environment, fails on the first state, or does not return an `Audit`.
    """
    name, state, action = first_move("auditor", auditor, environment)
    try:
        audit, success = auditor.audit(state, action), float(auditor.success(state))
    except Exception as error:
        raise ValueError(
            f"the auditor must audit every legal action of {environment.name!r}, got {type(error).__name__} from "
            f"{name!r} on {action!r} ({error}); choose another auditor or correct this one."
        ) from error
    if not isinstance(audit, Audit) or not 0 <= success <= 1:
        raise ValueError(
            f"an auditor must return an Audit and a success in [0, 1], got a {type(audit).__name__} and {success} "
            f"from {name!r}; correct it."
        )
