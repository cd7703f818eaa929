"""Continues cut episodes, to measure the outcomes that a truncation rule loses (paper T3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hf_credit.methods.t3 import Truncated
from hf_credit.rollouts import Chat, Ending, Episode, RolloutRequest, replay_from


def uncut(episode: Episode) -> Episode:
    """Returns the episode with the states of the inner Interaction."""
    decisions = tuple(replace(one, state=one.state.inner) for one in episode.decisions)
    return replace(episode, decisions=decisions)


def played_on(truncated: Truncated[Any], chat: Chat, episodes: Sequence[Episode]) -> list[RolloutRequest[Any]]:
    """Returns requests that continue the cut episodes, for an engine that plays `truncated.inner`.

    Each replays the last reply of its episode and continues after it.

    Args:
        truncated: the Interaction that was played.
        chat: the chat that rendered it.
        episodes: its episodes; those that were not cut are skipped.
    """
    return [
        replay_from(truncated.inner, chat, uncut(episode), len(episode.decisions) - 1, reply=episode.decisions[-1])
        for episode in episodes
        if episode.ending == Ending.CUT
    ]
