"""Episodes that were cut, played on: what a rule of truncation threw away (paper T3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hf_credit.methods.t3 import Truncated
from hf_credit.rollouts import Chat, Ending, Episode, RolloutRequest, replay_from


def uncut(episode: Episode) -> Episode:
    """The same episode as one of the inner Interaction, whose states its decisions then hold."""
    decisions = tuple(replace(one, state=one.state.inner) for one in episode.decisions)
    return replace(episode, decisions=decisions)


def played_on(truncated: Truncated[Any], chat: Chat, episodes: Sequence[Episode]) -> list[RolloutRequest[Any]]:
    """Starts from which the episodes that a hard cut stopped go on, for an engine that plays `truncated.inner`.

    Each begins with the last reply of its episode, as it was given, so what comes after is what the cut left out.

    Args:
        truncated: what was played.
        chat: that rendered it.
        episodes: played; those that were not cut are passed over.
    """
    return [
        replay_from(
            truncated.inner,
            chat,
            uncut(episode),
            len(episode.decisions) - 1,
            reply=episode.decisions[-1],
        )
        for episode in episodes
        if episode.ending == Ending.CUT
    ]
