"""Oracles over episodes: a verdict for every decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hf_credit.environments.actions import last_action
from hf_credit.oracles import Oracle
from hf_credit.rollouts.episode import Ending, Episode, Verdict
from hf_credit.rollouts.failures import FailureLog, in_one_line


def verify(episodes: Sequence[Episode], oracle: Oracle[Any], failures: FailureLog | None = None) -> list[Episode]:
    """The same episodes with the oracle's verdict on each decision (paper VPR, eq. 2).

    A reply without an action tag is no action: its score is 0 and the oracle is not asked. Where the oracle raises
    or returns something outside [0, 1], the episode ends there as an error: that decision and the later ones have
    no verdict, the earlier ones keep theirs.

    Args:
        episodes: of an `EnvironmentInteraction`.
        oracle: who judges.
        failures: logs the first failure of each kind, such as the engine's; one of this call if `None`.
    """
    failures = failures or FailureLog()
    return [_verified(episode, oracle, failures) for episode in episodes]


def _verified(episode: Episode, oracle: Oracle[Any], failures: FailureLog) -> Episode:
    decisions = list(episode.decisions)
    for turn, decision in enumerate(decisions):
        try:
            decisions[turn] = replace(decision, verdict=_verdict(decision.state.world, decision.action_text, oracle))
        except Exception as error:
            failures.add(error, "an oracle")
            message = f"oracle failed at turn {turn + 1}: {in_one_line(error)}"[:500]
            return replace(episode, decisions=tuple(decisions), ending=Ending.ERROR, error=message, exception=error)
    return replace(episode, decisions=tuple(decisions))


def _verdict(world: Any, reply: str, oracle: Oracle[Any]) -> Verdict:
    action = last_action(reply)
    score = 0.0 if action is None else float(oracle.score(world, action))
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"a score must be in [0, 1], got {score}")
    return Verdict(score=score, valid=score > 0)
