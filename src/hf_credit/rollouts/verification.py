"""Judgements of recorded episodes, such as an oracle's verdicts on their decisions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from hf_credit.oracles import Judge, Move, Oracle
from hf_credit.rollouts.capabilities import Acting
from hf_credit.rollouts.episode import Decision, Ending, Episode, Verdict
from hf_credit.rollouts.failures import FailureLog, in_one_line
from hf_credit.rollouts.interaction import Interaction
from hf_credit.validators import finite_number

_JUDGING = threading.Lock()  # a judge judges for one collection at a time, as it keeps answers and counts its calls


def verify(
    episodes: Sequence[Episode],
    oracle: Oracle[Any],
    interaction: Interaction[Any],
    failures: FailureLog | None = None,
    costs: Counter[str] | None = None,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[Episode]:
    """Returns the episodes with an oracle's verdict on each decision (paper VPR, eq. 2).

    A reply without an action scores 0, without a call of the oracle. If the oracle raises or returns a score outside
    [0, 1], the episode ends in an error, as for `judged`. A `Judge` gets all decisions of the policy at once;
    what it leaves unknown, where it fails, or what is no number in [0, 1], has no verdict.

    Args:
        episodes: episodes of `interaction`.
        interaction, failures: as for `judged`.
        costs: receives what a `Judge` took, by name.
        waiting: as `MethodContext.waiting`, while a `Judge` judges.
    """
    if isinstance(oracle, Judge):
        costs = Counter() if costs is None else costs
        return _judged_at_once(episodes, oracle, interaction, failures or FailureLog(), costs, waiting)

    def with_verdict(decision: Decision, world: Any, action: str) -> Decision:
        score = float(oracle.score(world, action)) if action else 0.0
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"the score of an oracle must be in [0, 1], got {score}; scale it.")
        return replace(decision, verdict=Verdict(score=score))

    return judged(episodes, interaction, "oracle", with_verdict, failures=failures)


def _judged_at_once(
    episodes: Sequence[Episode],
    judge: Judge,
    interaction: Interaction[Any],
    log: FailureLog,
    costs: Counter[str],
    waiting: Callable[[], AbstractContextManager[None]],
) -> list[Episode]:
    moves = dict[str, Move]()  # by id: a decision that episodes share is judged once
    scores = dict[str, float]()

    def described(number: int, one: Decision, world: Any, action: str) -> Decision:
        if not one.observed and one.id not in moves:
            asked = next(asked for asked in interaction.pending(one.state) if asked.event == one.event)
            facts: Any = {"reply": one.action_text, "action": action, "state": world, "episode": number}
            facts |= {"interaction": interaction, "before": one.state}
            moves[one.id] = Move(messages=asked.messages, tools=asked.tools, **facts)
        return one

    action_of: Any = getattr(interaction, "action_of", lambda *state_and_reply: state_and_reply)
    for number, one in enumerate(episodes := list(episodes)):
        decide = partial(described, number)
        (episodes[number],) = judged([one], interaction, "judge", decide, failures=log, action_of=action_of)
    asked = {name: move for name, move in moves.items() if move.action}
    found: dict[str, float | None] = dict.fromkeys(moves.keys() - asked.keys(), 0.0)
    try:
        with nullcontext() if judge.plays else waiting(), _JUDGING:
            found |= dict(zip(asked, judge.judge([*asked.values()], costs), strict=True))
    except Exception as error:
        log.add(error, "a judge")
    for name, score in found.items():
        try:
            scores |= {} if score is None else {name: finite_number("a verdict", score, 0, most=1)}
        except ValueError as error:
            log.add(error, "a verdict of a judge")
    costs.update(known=len(scores), unknown=len(moves) - len(scores))
    verdicts = {name: Verdict(score=score) for name, score in scores.items()}
    return [
        replace(one, decisions=tuple(replace(own, verdict=verdicts.get(own.id)) for own in one.decisions))
        for one in episodes
    ]


def judged(
    episodes: Sequence[Episode],
    interaction: Interaction[Any],
    judge: str,
    decide: Callable[[Decision, Any, str], Decision],
    conclude: Callable[[Any], Mapping[str, Any]] | None = None,
    failures: FailureLog | None = None,
    action_of: Callable[[Any, str], tuple[Any, str]] | None = None,
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
        action_of: in place of `Acting.action_of`.
    """
    log = failures or FailureLog()
    acting = Acting(interaction)
    action_of = action_of or acting.action_of

    def judged_episode(episode: Episode) -> Episode:
        decisions, extras, where = list(episode.decisions), dict(episode.extras), ""
        try:
            for turn, decision in enumerate(decisions):
                where = f"turn {turn + 1}"
                state = acting.as_asked(decision.state, decision.event)
                decisions[turn] = decide(decision, *action_of(state, decision.action_text))
            where = "the end"
            if conclude is not None and episode.final_state is not None:
                extras |= conclude(action_of(episode.final_state, "")[0])
        except Exception as error:
            log.add(error, f"an {judge}")
            partial = replace(episode, decisions=tuple(decisions))
            message = f"{judge} failed at {where}: {in_one_line(error)}"[:500]
            failed = episode.ending == Ending.ERROR
            return partial if failed else replace(partial, ending=Ending.ERROR, error=message, exception=error)
        return replace(episode, decisions=tuple(decisions), extras=extras)

    return [judged_episode(episode) for episode in episodes]
