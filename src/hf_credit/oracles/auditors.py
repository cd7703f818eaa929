"""Auditors and interventions by name, as in a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hf_credit.environments import Environment
from hf_credit.oracles.auditing import Audit, Auditor, Interventions
from hf_credit.oracles.base import first_move
from hf_credit.registry import build, described, name_and_options

AUDITORS = {
    "evidence": "hf_credit.oracles.evidence_audit:EvidenceAuditor",
    "evidence_learned": "hf_credit.oracles.hack_detector:learned_evidence_auditor",
}
INTERVENTIONS = {"evidence": "hf_credit.oracles.evidence_interventions:EvidenceInterventions"}

AuditorLike = Auditor[Any] | str | Mapping[str, Any]
"""The argument of `resolve_auditor`: an auditor, its name, or a mapping of its `name` and `options`."""

InterventionsLike = Interventions[Any] | str | Mapping[str, Any]
"""The argument of `resolve_interventions`: interventions, their name, or a mapping of their `name` and `options`."""


def resolve_auditor(auditor: AuditorLike | None) -> Auditor[Any] | None:
    """Returns an auditor, from itself, its name or `"module:object"`, or a mapping of its `name` and `options`.

    Raises:
        ValueError: the name or an option is invalid, or the result is not an auditor.
    """
    members = ("audit", "success", "costs", "categories", "slots")
    return _resolved("auditor", AUDITORS, auditor, members)  # type: ignore[no-any-return]


def resolve_interventions(interventions: InterventionsLike | None) -> Interventions[Any] | None:
    """Returns interventions, from themselves, their name or `"module:object"`, or a mapping of `name` and `options`.

    Raises:
        ValueError: as in `resolve_auditor`.
    """
    members = ("families", "applies", "propose", "evidence")
    return _resolved("intervention", INTERVENTIONS, interventions, members)  # type: ignore[no-any-return]


def auditor_spec(auditor: Auditor[Any]) -> dict[str, Any]:
    """Returns the `name` and `options` from which `resolve_auditor` rebuilds an auditor.

    Raises:
        ValueError: as for `hf_credit.environments.spec`.
    """
    return dict(zip(("name", "options"), described("auditor", AUDITORS, auditor), strict=True))


def interventions_spec(interventions: Interventions[Any]) -> dict[str, Any]:
    """Returns the `name` and `options` from which `resolve_interventions` rebuilds interventions.

    Raises:
        ValueError: as for `hf_credit.environments.spec`.
    """
    return dict(zip(("name", "options"), described("intervention", INTERVENTIONS, interventions), strict=True))


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


def _resolved(kind: str, known: Mapping[str, str], given: Any, members: tuple[str, ...]) -> Any:
    if isinstance(given, str | Mapping):
        given = build(kind, known, *name_and_options(kind, given))
    missing = () if given is None else [member for member in members if not hasattr(given, member)]
    if missing:
        raise ValueError(f"an {kind} must have {', '.join(members)}, got one without {missing[0]}; add it.")
    return given
