"""Audits of episodes: an audit of every decision, and the verified success of the episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hf_credit.oracles.auditing import AUDIT, VERIFIED, Audit, Auditor
from hf_credit.rollouts.episode import Decision, Episode
from hf_credit.rollouts.failures import FailureLog
from hf_credit.rollouts.interaction import Interaction
from hf_credit.rollouts.verification import judged


def audit_of(decision: Decision) -> Audit | None:
    """Returns the audit of a decision; `None` without an auditor or if it failed."""
    return decision.extras.get(AUDIT)


def outcome(episode: Episode, which: str) -> float:
    """The outcome of an audited episode: of the `"check"`, or the `"verified"` one."""
    success = episode.outcome if which == "check" else verified_success(episode)
    assert success is not None
    return success


def verified_success(episode: Episode) -> float | None:
    """Returns Y, the verified success of an episode, in [0, 1]; `None` without an auditor or if it failed."""
    return episode.extras.get(VERIFIED)


def audited(
    episodes: Sequence[Episode],
    auditor: Auditor[Any],
    interaction: Interaction[Any],
    failures: FailureLog | None = None,
) -> list[Episode]:
    """Returns the episodes with an audit of each decision, and their verified success (Y of paper CVT-RL, eq. 4).

    A reply without an action is audited as the empty action. If an auditor raises or returns an invalid audit, the
    episode ends in an error, as for `judged`; an episode that had already failed gets audits but no success.

    Args:
        interaction, failures: as for `hf_credit.rollouts.verification.judged`.
    """

    def with_audit(decision: Decision, world: Any, action: str) -> Decision:
        audit = _checked(auditor.audit(world, action), auditor)
        return replace(decision, extras={**decision.extras, AUDIT: audit})

    def success(world: Any) -> dict[str, float]:
        verified = float(auditor.success(world))
        if not 0 <= verified <= 1:
            raise ValueError(f"a verified success must be in [0, 1], got {verified}; scale it.")
        return {VERIFIED: verified}

    return judged(episodes, interaction, "auditor", with_audit, success, failures)


def _checked(audit: Audit, auditor: Auditor[Any]) -> Audit:
    """The audit, if the auditor declares all its names; `Audit` checks the values."""
    declared = (
        ("cost", audit.costs, auditor.costs),
        ("hack", audit.hacks, auditor.categories),
        ("belief", audit.beliefs, tuple(auditor.slots)),
    )
    for what, given, known in declared:
        if unknown := [name for name in given if name not in known]:
            raise ValueError(
                f"a {what} must be one that the auditor declares ({', '.join(known)}), got {unknown[0]!r}; correct it."
            )
    for slot, belief in audit.beliefs.items():
        if len(belief) != auditor.slots[slot]:
            raise ValueError(
                f"a belief must have a probability for each of the {auditor.slots[slot]} values of the slot {slot!r}, "
                f"got {len(belief)}; correct the slot or the belief."
            )
    return audit
