"""Replay: every reply of an entry said again to the rules, and whether the same comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hf_credit.hub.leaderboard.entries import Entry
from hf_credit.hub.leaderboard.replies import PlayedEpisode
from hf_credit.hub.leaderboard.seasons import Season, starts_of
from hf_credit.rollouts import Ending, Interaction, RolloutRequest

_TOLERANCE = 1e-9


def require_seeds(entry: Entry, season: Season, episodes: Sequence[PlayedEpisode]) -> None:
    """Refuses episodes other than one of each checkpoint on each public task.

    Raises:
        ValueError: a seed is missing, comes twice or is not one of the public tasks, as those of training are not.
    """
    wanted = season.board(entry.board).public_seeds()
    known = set(wanted)
    for place in range(len(entry.checkpoints)):
        own = [one.seed for one in episodes if one.checkpoint == place]
        for seed in own:
            if seed not in known:
                kind = "a task of training" if 0 <= seed < 2**31 else "no task of this board"
                raise ValueError(
                    f"an entry must be played on the public tasks {wanted[0]} to {wanted[-1]}, got the seed {seed} of "
                    f"checkpoint {place}, {kind}; play the public tasks."
                )
        repeated = next((seed for seed in own if own.count(seed) > 1), None) if len(set(own)) < len(own) else None
        if repeated is not None:
            raise ValueError(
                f"every public task must be played once, got the seed {repeated} of checkpoint {place} more than "
                "once; keep the first."
            )
        missing = sorted(known - set(own))
        if missing:
            raise ValueError(
                f"every public task must be played, got none of checkpoint {place} for the seed {missing[0]} and "
                f"{len(missing) - 1} others; play them too."
            )
    if strays := {one.checkpoint for one in episodes} - set(range(len(entry.checkpoints))):
        raise ValueError(
            f"an episode must be of a checkpoint of the entry, got one of number {min(strays)}; remove it."
        )


def replay_entry(entry: Entry, season: Season, episodes: Sequence[PlayedEpisode]) -> None:
    """Says every reply again and compares what comes of it with what the entry says.

    Args:
        entry: whose replies.
        season: knows the rules.
        episodes: as `require_seeds` accepts them.

    Raises:
        ValueError: an episode is not what comes of its replies; the first one is named.
    """
    interaction = entry.task(season).build()
    starts = {start.seed: start for start in starts_of(interaction, season.board(entry.board).public_seeds())}
    for episode in episodes:
        replay_episode(interaction, starts[episode.seed], episode)


def replay_episode(interaction: Interaction[Any], start: RolloutRequest[Any], episode: PlayedEpisode) -> None:
    """Says the replies of one episode again.

    An episode that was truncated ends while somebody is asked, since a context did not fit; every other one where
    nobody is. One that failed counts as 0 and may end anywhere.

    Raises:
        ValueError: the events, the ending or the outcome are not what comes of these replies.
    """
    replies = list(zip(episode.events, episode.replies, strict=True))
    try:
        state = interaction.start(start.task, episode.seed)
        while replies and (requests := interaction.pending(state)):
            step, replies = replies[: len(requests)], replies[len(requests) :]
            if [event for event, _ in step] != [request.event for request in requests]:
                raise _differs(episode, "its events", [event for event, _ in step], [one.event for one in requests])
            state = interaction.advance(state, [text for _, text in step])
        asked = bool(interaction.pending(state))
        ending = str(interaction.ending(state))
        outcome = float(interaction.outcome(state))
    except _ReplayError:
        raise
    except Exception as error:
        if episode.ending == Ending.ERROR and episode.outcome == 0:
            return
        raise _differs(episode, "its course", episode.ending, f"{type(error).__name__}: {error}"[:200]) from None
    if replies:
        raise _differs(episode, "the number of its replies", len(episode.replies), len(episode.replies) - len(replies))
    if episode.ending == Ending.ERROR:
        if episode.outcome != 0:
            raise _differs(episode, "the outcome of a failure", episode.outcome, 0.0)
        return
    if asked:
        ending = str(Ending.TRUNCATED)
    if episode.ending != ending:
        raise _differs(episode, "its ending", episode.ending, ending)
    if abs(episode.outcome - outcome) > _TOLERANCE:
        raise _differs(episode, "its outcome", episode.outcome, outcome)


class _ReplayError(ValueError):
    """An episode that is not what comes of its replies."""


def _differs(episode: PlayedEpisode, what: str, told: Any, found: Any) -> _ReplayError:
    return _ReplayError(
        f"every episode must be what comes of its replies, got {what} as {told!r} where the replay of seed "
        f"{episode.seed} of checkpoint {episode.checkpoint} gives {found!r}; submit what was played."
    )
