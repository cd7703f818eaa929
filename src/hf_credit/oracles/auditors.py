"""Auditors and interventions by name, as a recipe has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hf_credit.environments import Environment
from hf_credit.oracles.auditing import Audit, Auditor, Interventions
from hf_credit.oracles.base import first_move
from hf_credit.registry import described, find, refuse_options, remember

AUDITORS = {
    "evidence": "hf_credit.oracles.evidence_audit:EvidenceAuditor",
    "evidence_learned": "hf_credit.oracles.hack_detector:learned_evidence_auditor",
}
INTERVENTIONS = {"evidence": "hf_credit.oracles.evidence_interventions:EvidenceInterventions"}

AuditorLike = Auditor[Any] | str | Mapping[str, Any]
"""What `resolve_auditor` takes: an auditor, its name, or a mapping of its `name` and `options`."""

InterventionsLike = Interventions[Any] | str | Mapping[str, Any]
"""What `resolve_interventions` takes: interventions, their name, or a mapping of their `name` and `options`."""


def resolve_auditor(auditor: AuditorLike | None) -> Auditor[Any] | None:
    """An auditor, from itself, its name, the `"module:object"` of one, or a mapping of its `name` and `options`.

    Raises:
        ValueError: the name or an option is not possible, or it is none, in one sentence.
    """
    members = ("audit", "success", "costs", "categories", "slots")
    made: Auditor[Any] | None = None if auditor is None else _resolved("auditor", AUDITORS, auditor, members)
    return made


def resolve_interventions(interventions: InterventionsLike | None) -> Interventions[Any] | None:
    """Interventions, from themselves, their name, their `"module:object"`, or a mapping of `name` and `options`.

    Raises:
        ValueError: as in `resolve_auditor`.
    """
    members = ("families", "applies", "propose", "evidence")
    if interventions is None:
        return None
    made: Interventions[Any] = _resolved("intervention", INTERVENTIONS, interventions, members)
    return made


def auditor_spec(auditor: Auditor[Any]) -> dict[str, Any]:
    """The `name` and `options` from which `resolve_auditor` makes an auditor again.

    Raises:
        ValueError: as for `hf_credit.environments.spec`.
    """
    return dict(zip(("name", "options"), described("auditor", AUDITORS, auditor), strict=True))


def interventions_spec(interventions: Interventions[Any]) -> dict[str, Any]:
    """The `name` and `options` from which `resolve_interventions` makes interventions again.

    Raises:
        ValueError: as for `hf_credit.environments.spec`.
    """
    return dict(zip(("name", "options"), described("intervention", INTERVENTIONS, interventions), strict=True))


def default_auditor(environment: Environment[Any]) -> Auditor[Any] | None:
    """The auditor of an environment of this library, at its best; of any other what its own method
    `default_auditor()` gives, `None` where it has none."""
    if environment.name == "evidence":
        return resolve_auditor({"name": "evidence", "options": {"documents": environment.documents}})  # type: ignore[attr-defined]
    made: Auditor[Any] | None = _own(environment, "default_auditor")
    return made


def default_interventions(environment: Environment[Any]) -> Interventions[Any] | None:
    """The interventions of an environment of this library; of any other what its own method
    `default_interventions()` gives, `None` where it has none."""
    if environment.name in INTERVENTIONS:
        return resolve_interventions(environment.name)
    made: Interventions[Any] | None = _own(environment, "default_interventions")
    return made


def require_auditor_fit(auditor: Auditor[Any], environment: Environment[Any]) -> None:
    """Refuses an auditor that cannot audit an environment, by asking it about the first legal action of one task.

    Raises:
        ValueError: it is made for another environment, it fails on the first state, or says what is no audit.
    """
    name, state, action = first_move("auditor", auditor, environment)
    try:
        made, success = auditor.audit(state, action), float(auditor.success(state))
    except Exception as error:
        raise ValueError(
            f"the auditor must audit every legal action of {environment.name!r}, got {type(error).__name__} from "
            f"{name!r} on {action!r} ({error}); choose another auditor or mend this one."
        ) from error
    if not isinstance(made, Audit) or not 0 <= success <= 1:
        raise ValueError(
            f"an auditor must return an Audit and a success in [0, 1], got a {type(made).__name__} and {success} from "
            f"{name!r}; mend it."
        )


def _resolved(kind: str, known: Mapping[str, str], given: Any, members: tuple[str, ...]) -> Any:
    if isinstance(given, str):
        given = {"name": given}
    if isinstance(given, Mapping):
        if "name" not in given or set(given) - {"name", "options"}:
            raise ValueError(
                f"an {kind} is described by its name and its options, got {dict(given)}; write "
                "{'name': 'evidence', 'options': {}}, say."
            )
        factory, name, options = find(kind, known, given["name"]), given["name"], given.get("options") or {}
        refuse_options(kind, factory, name, options)
        given = factory(**options)
        if type(given) is not factory:
            remember(given, name, factory, **options)
    if missing := [member for member in members if not hasattr(given, member)]:
        raise ValueError(f"an {kind} must have {', '.join(members)}, got one without {missing[0]}; add it.")
    return given


def _own(environment: Environment[Any], method: str) -> Any:
    made: Callable[[], Any] | None = getattr(environment, method, None)
    return None if made is None else made()
