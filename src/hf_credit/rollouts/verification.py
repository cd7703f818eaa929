"""Oracles over episodes: a verdict for every decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hf_credit.oracles import Oracle
from hf_credit.rollouts.capabilities import Acting
from hf_credit.rollouts.episode import Ending, Episode, Verdict
from hf_credit.rollouts.failures import FailureLog, in_one_line
from hf_credit.rollouts.interaction import Interaction


def verify(
    episodes: Sequence[Episode],
    oracle: Oracle[Any],
    interaction: Interaction[Any],
    failures: FailureLog | None = None,
) -> list[Episode]:
    """The same episodes with the oracle's verdict on each decision (paper VPR, eq. 2).

    A reply that takes no action scores 0, and the oracle is not asked. Where the oracle raises
    or returns something outside [0, 1], the episode ends there as an error: that decision and the later ones have
    no verdict, the earlier ones keep theirs.

    Args:
        episodes: of `interaction`.
        oracle: who judges.
        interaction: tells which action a reply took in which state of the environment.
        failures: logs the first failure of each kind, such as the engine's; one of this call if `None`.
    """
    failures = failures or FailureLog()
    return [_verified(episode, oracle, interaction, failures) for episode in episodes]


def _verified(episode: Episode, oracle: Oracle[Any], interaction: Interaction[Any], failures: FailureLog) -> Episode:
    decisions = list(episode.decisions)
    for turn, decision in enumerate(decisions):
        try:
            world, action = Acting(interaction).action_of(decision.state, decision.action_text)
            decisions[turn] = replace(decision, verdict=_verdict(world, action, oracle))
        except Exception as error:
            failures.add(error, "an oracle")
            message = f"oracle failed at turn {turn + 1}: {in_one_line(error)}"[:500]
            return replace(episode, decisions=tuple(decisions), ending=Ending.ERROR, error=message, exception=error)
    return replace(episode, decisions=tuple(decisions))


def _verdict(world: Any, action: str, oracle: Oracle[Any]) -> Verdict:
    score = float(oracle.score(world, action)) if action else 0.0
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"a score must be in [0, 1], got {score}")
    return Verdict(score=score, valid=score > 0)
