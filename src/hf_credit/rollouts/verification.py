"""Judgements of recorded episodes, such as an oracle's verdicts on their decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hf_credit.oracles import Oracle
from hf_credit.rollouts.capabilities import Acting
from hf_credit.rollouts.episode import Decision, Ending, Episode, Verdict
from hf_credit.rollouts.failures import FailureLog, in_one_line
from hf_credit.rollouts.interaction import Interaction


def verify(
    episodes: Sequence[Episode],
    oracle: Oracle[Any],
    interaction: Interaction[Any],
    failures: FailureLog | None = None,
) -> list[Episode]:
    """Returns the episodes with an oracle's verdict on each decision (paper VPR, eq. 2).

    A reply without an action scores 0, without a call of the oracle. If the oracle raises or returns a score outside
    [0, 1], the episode ends in an error, as for `judged`.

    Args:
        episodes: episodes of `interaction`.
        interaction, failures: as for `judged`.
    """

    def with_verdict(decision: Decision, world: Any, action: str) -> Decision:
        score = float(oracle.score(world, action)) if action else 0.0
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"the score of an oracle must be in [0, 1], got {score}; scale it.")
        return replace(decision, verdict=Verdict(score=score))

    return judged(episodes, interaction, "oracle", with_verdict, failures=failures)


def judged(
    episodes: Sequence[Episode],
    interaction: Interaction[Any],
    judge: str,
    decide: Callable[[Decision, Any, str], Decision],
    conclude: Callable[[Any], Mapping[str, Any]] | None = None,
    failures: FailureLog | None = None,
) -> list[Episode]:
    """Returns the episodes with a judgement of each decision, and of each finished episode.

    If the judge raises, the episode ends in an error: only earlier decisions have judgements. An episode that had
    already failed keeps its failure.

    Args:
        episodes: episodes of `interaction`.
        interaction: determines the action of a reply and the state of the environment.
        judge: the name of the judge in errors.
        decide: maps a decision, the environment's state before it and its action (empty without one) to the decision
            with its judgement.
        conclude: maps the last state of the environment to additional `extras` of the episode.
        failures: logs the first failure of each kind; a new log if `None`.
    """
    log = failures or FailureLog()
    acting = Acting(interaction)

    def judged_episode(episode: Episode) -> Episode:
        decisions, extras, where = list(episode.decisions), dict(episode.extras), ""
        try:
            for turn, decision in enumerate(decisions):
                where = f"turn {turn + 1}"
                state = acting.as_asked(decision.state, decision.event)
                decisions[turn] = decide(decision, *acting.action_of(state, decision.action_text))
            where = "the end"
            if conclude is not None and episode.final_state is not None:
                extras |= conclude(acting.action_of(episode.final_state, "")[0])
        except Exception as error:
            log.add(error, f"an {judge}")
            partial = replace(episode, decisions=tuple(decisions))
            message = f"{judge} failed at {where}: {in_one_line(error)}"[:500]
            failed = episode.ending == Ending.ERROR
            return partial if failed else replace(partial, ending=Ending.ERROR, error=message, exception=error)
        return replace(episode, decisions=tuple(decisions), extras=extras)

    return [judged_episode(episode) for episode in episodes]
