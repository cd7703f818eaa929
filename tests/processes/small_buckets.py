"""Actions of buckets, whose replays consist of the action alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hf_credit.diagnostics.buckets import Action
from hf_credit.rollouts import Decision, Ending, Episode, Verdict


def action(
    text: str,
    returns: Sequence[float] = (),
    event: str = "agent",
    turn: int = 0,
    verdict: float | None = None,
    **more: Any,
) -> Action:
    decision = Decision(
        role=event,
        event=event,
        state=None,
        context_ids=(turn,),
        action_ids=(),
        logprobs=None,
        action_text=text,
        verdict=None if verdict is None else Verdict(score=verdict),
    )
    replays = tuple(Episode(decisions=(decision,), outcome=value, ending=Ending.FINISHED) for value in returns)
    more.setdefault("responses", (None,) * len(returns))
    return Action(text=text, returns=tuple(returns), verdict=verdict, replays=replays, **more)
