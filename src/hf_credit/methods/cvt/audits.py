"""Auditors over episodes: an audit of every decision, and whether each episode is a verified success."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hf_credit.oracles.auditing import AUDIT, VERIFIED, Audit, Auditor
from hf_credit.rollouts.capabilities import Acting
from hf_credit.rollouts.episode import Decision, Ending, Episode
from hf_credit.rollouts.failures import FailureLog, in_one_line
from hf_credit.rollouts.interaction import Interaction


def audit_of(decision: Decision) -> Audit | None:
    """The audit of a decision; `None` where none was asked or it failed."""
    audit: Audit | None = decision.extras.get(AUDIT)
    return audit


def verified_success(episode: Episode) -> float | None:
    """Y, whether an auditor takes an episode for a success, in [0, 1]; `None` where none was asked or it failed."""
    success: float | None = episode.extras.get(VERIFIED)
    return success


def audited(
    episodes: Sequence[Episode],
    auditor: Auditor[Any],
    interaction: Interaction[Any],
    failures: FailureLog | None = None,
) -> list[Episode]:
    """The same episodes with `audit_of` each decision, and `verified_success` (Y of paper CVT-RL, eq. 4).

    A reply that takes no action is audited as the empty action. Where the auditor raises, or says what an audit may
    not hold, the episode ends as an error: that decision and the later ones have no audit, the earlier ones keep
    theirs. An episode that had failed already keeps its failure, and gets audits but no success.

    Args:
        episodes: of `interaction`.
        auditor: who audits.
        interaction: tells which action a reply took in which state of the environment.
        failures: logs the first failure of each kind, such as the engine's; one of this call if `None`.
    """
    failures = failures or FailureLog()
    return [_audited(episode, auditor, interaction, failures) for episode in episodes]


def _audited(episode: Episode, auditor: Auditor[Any], interaction: Interaction[Any], failures: FailureLog) -> Episode:
    decisions, where = list(episode.decisions), ""
    try:
        for turn, decision in enumerate(decisions):
            where = f"turn {turn + 1}"
            world, action = Acting(interaction).action_of(decision.state, decision.action_text)
            audit = _checked(auditor.audit(world, action), auditor)
            decisions[turn] = replace(decision, extras={**decision.extras, AUDIT: audit})
        where = "the end"
        extras = dict(episode.extras)
        if episode.final_state is not None:
            extras[VERIFIED] = _success(auditor, interaction, episode.final_state)
    except Exception as error:
        failures.add(error, "an auditor")
        if episode.ending == Ending.ERROR:
            return replace(episode, decisions=tuple(decisions))
        message = f"auditor failed at {where}: {in_one_line(error)}"[:500]
        return replace(episode, decisions=tuple(decisions), ending=Ending.ERROR, error=message, exception=error)
    return replace(episode, decisions=tuple(decisions), extras=extras)


def _success(auditor: Auditor[Any], interaction: Interaction[Any], state: Any) -> float:
    world, _ = Acting(interaction).action_of(state, "")
    success = float(auditor.success(world))
    if not 0 <= success <= 1:
        raise ValueError(f"a verified success must be in [0, 1], got {success}; scale it.")
    return success


def _checked(audit: Audit, auditor: Auditor[Any]) -> Audit:
    """An audit that holds only what its auditor says it may; its values are checked where it is made."""
    named = (
        ("cost", audit.costs, auditor.costs),
        ("hack", audit.hacks, auditor.categories),
        ("belief", audit.beliefs, tuple(auditor.slots)),
    )
    for what, given, known in named:
        if unknown := [name for name in given if name not in known]:
            raise ValueError(
                f"a {what} must be named as one of the auditor's {', '.join(known)}, got {unknown[0]!r}; correct it."
            )
    for slot, belief in audit.beliefs.items():
        if len(belief) != auditor.slots[slot]:
            raise ValueError(
                f"a belief must have a share for each of the {auditor.slots[slot]} values of the slot {slot!r}, got "
                f"{len(belief)}; correct the slot or the belief."
            )
    return audit
