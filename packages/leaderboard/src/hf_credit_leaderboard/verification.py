"""Verification: replays every reply of an entry, then, in a confined process, plays its checkpoints
again. This process reads untrusted files only as values."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from hf_credit.boundary import read
from hf_credit.evaluation.runs import versions
from hf_credit.hub.loading import TooLarge
from hf_credit.rollouts import Ending, Interaction, RolloutRequest
from hf_credit.validators import first_line
from hf_credit_leaderboard.confined import ISOLATION, Limits, confined_play
from hf_credit_leaderboard.entries import Checkpoint, Entry, PlayedEpisode, counted
from hf_credit_leaderboard.inputs import pinned
from hf_credit_leaderboard.ranking import paired_p
from hf_credit_leaderboard.records import LONGEST_TEMPLATE, REPLAYED, VERIFIED, Record, linked, same_weights
from hf_credit_leaderboard.seasons import Season, SeasonSecret, print_key, secret_seeds, starts_of
from hf_credit_leaderboard.weights import MOST_FILE_BYTES, check_folder, parameters, template_digest, tensor_digest

LEAST_P = 1e-3
"""A claim is refused if its paired test against the second play has a lower p-value."""

Download = Callable[[str, str, int], Path]
"""Returns the folder of a repository at a commit, with the files of `hf_credit_leaderboard.weights.WANTED`.

It raises `TooLarge`, before any download, if these files have more bytes than the third argument, and another
`ValueError` if the commit does not exist, and an `OSError` for trouble that is not the entry's.
"""

Play = Callable[[Mapping[str, Any], Sequence[Path], Limits], dict[str, Any]]
"""Answers a request of `hf_credit_leaderboard.playing.answer` with read access to these folders, within limits."""

_WIDEST = 8  # bytes of a parameter
_OTHER_BYTES = 4 * MOST_FILE_BYTES  # of the tokenizer and other files next to the weights
_TOLERANCE = 1e-9  # of a replayed outcome


class Refusal(ValueError):
    """The reason, in one sentence, why an entry is not listed."""


def verify_entry(
    name: str,
    entry: Entry,
    episodes: Sequence[PlayedEpisode],
    season: Season,
    secret: SeasonSecret,
    download: Download,
    *,
    submitter: str = "",
    listed: Sequence[Record] = (),
    limits: Limits | None = None,
    play: Play = confined_play,
) -> Record:
    """Verifies an entry and returns its record.

    Replays every reply, then plays the checkpoints on the public and the secret tasks. The claim holds if its outcomes
    on the public tasks do not differ from the second play in a paired test: p >= 0.001 by
    `hf_credit_leaderboard.ranking.paired_p`. The outcomes on the secret tasks make the rank. An entry whose checkpoint
    exceeds the limit of parameters is listed as `replayed`, without a rank; one with a chat template that the season
    does not know has no rank and no outcomes.

    Args:
        download: of checkpoints.
        submitter: the account that opened the pull request; "" if unknown.
        listed: the records of the board, in which copies are searched.
        limits: the limits of the process that plays.

    Raises:
        Refusal: the entry is not listed, for the reason in the message.
        OSError: the Hub or this machine failed, which says nothing of the entry.
    """
    limits = limits or Limits()
    known: dict[str, Any] = {"entry": name, "season": season.name, "board": entry.board, "versions": versions()}
    known["submitter"] = submitter
    try:
        request, readable, of_weights = _request(entry, episodes, season, secret, download, limits)
        answer = play({**request, "device": limits.device}, readable, limits)
    except TooLarge as error:
        note = f"Every reply was executed again; the checkpoints were not: {error}"
        return Record(**known, badge=REPLAYED, notes=(note,))
    except ValueError as error:
        raise Refusal(first_line(error)) from None
    again = {
        kind: [read(PlayedEpisode, one, "an episode") for one in played] for kind, played in answer["episodes"].items()
    }
    public = compare(episodes, again["public"])
    if public["p"] < LEAST_P:
        raise Refusal(
            f"a claim must survive being played again, got {public['claimed']:.3f} claimed and {public['found']:.3f} "
            f"found on the public tasks (paired test, p = {public['p']:.2g} < {LEAST_P:g}); submit what hf-credit "
            "submit plays with what you name."
        )
    known |= {"badge": VERIFIED, "public": public, "isolation": tuple(answer.get("isolation", ()))}
    outcomes = {(one.checkpoint, one.seed): one.outcome for one in again["secret"]}
    templates = {template_digest(text): text for text in answer["templates"]}
    unknown = {digest: text for digest, text in templates.items() if digest not in season.templates}
    if (size := sum(map(len, unknown.values()))) > LONGEST_TEMPLATE:  # every reader of the board reads its records
        raise Refusal(
            f"the unknown chat templates of an entry must have at most {LONGEST_TEMPLATE} characters together, got "
            f"{size}; share one."
        )
    record = Record(
        **known,
        **of_weights,
        secret=tuple(
            tuple(outcomes[index, seed] for seed in request["seeds"]["secret"])
            for index in range(0 if unknown else len(entry.checkpoints))
        ),
        tokens=None if unknown else fmean(sum(one.tokens) for one in again["secret"]),
        owners=tuple(one.repo.partition("/")[0] for one in entry.checkpoints),
        templates=tuple(template_digest(text) for text in answer["templates"]),
        unknown_templates=unknown,
        prints=tuple(tuple(one) for one in answer["prints"]),
    )
    if any(same_weights(*pair) for pair in itertools.combinations(zip(record.tensors, record.prints, strict=True), 2)):
        raise Refusal(
            "every checkpoint of an entry must be a separate training run, got the same weights twice; name each once."
        )
    record = linked(record, listed)
    return dataclasses.replace(record, notes=tuple(_notes(record)))


def _request(
    entry: Entry,
    episodes: Sequence[PlayedEpisode],
    season: Season,
    secret: SeasonSecret,
    download: Download,
    limits: Limits,
) -> tuple[dict[str, Any], list[Path], dict[str, Any]]:
    """Returns the request to `Play`, the folders that it reads, and the fields of the record that describe weights."""
    replay_entry(entry, season, episodes, limits.seconds)
    board = season.board(entry.board)
    folders = [_folders(one, download, limits) for one in entry.checkpoints]
    tensors = tuple(tensor_digest(folder) for folder, _ in folders)
    request = {
        "checkpoints": [[str(folder), base and str(base)] for folder, base in folders],
        "spec": entry.task(season).to_dict(),
        "printed_spec": board.task().to_dict(),
        "seeds": {"public": board.public_seeds(), "secret": secret_seeds(secret.salt, board.name, board.secret)},
        "print_key": print_key(secret.salt, board.name),
    }
    size = max(parameters(folder) + (parameters(base) if base else 0) for folder, base in folders)
    return request, [path for pair in folders for path in pair if path], {"tensors": tensors, "parameters": size}


def _folders(one: Checkpoint, download: Download, limits: Limits) -> tuple[Path, Path | None]:
    most_bytes = _WIDEST * limits.parameters + _OTHER_BYTES
    sources = [(one.repo, one.commit)] + ([] if one.base is None else [pinned(one.base, "a base model")])
    folders = []
    for repo, commit in sources:
        folders.append(download(repo, commit, most_bytes))
        check_folder(folders[-1])
    size = sum(map(parameters, folders))
    if size > limits.parameters:
        raise TooLarge(
            f"a checkpoint must have at most {limits.parameters} parameters, got {size} in {one.repo}; ask the "
            "maintainers of the board for a larger verifier."
        )
    return folders[0], folders[1] if one.base is not None else None


# Replay of every reply


def require_seeds(entry: Entry, season: Season, episodes: Sequence[PlayedEpisode]) -> None:
    """Refuses episodes other than exactly one of each checkpoint on each public task.

    Raises:
        ValueError: a seed is missing, repeated, or not one of a public task.
    """
    public = season.board(entry.board).public_seeds()
    wanted = {(place, seed) for place in range(len(entry.checkpoints)) for seed in public}
    played = Counter((one.checkpoint, one.seed) for one in episodes)
    extra = [one for one, times in played.items() if times > (one in wanted)]
    if wrong := extra or sorted(wanted - played.keys()):
        place, seed = wrong[0]
        note = ", a training task" if 0 <= seed < public[0] else ""
        raise ValueError(
            f"the public tasks {public[0]} to {public[-1]} must be played once by each of {len(entry.checkpoints)} "
            f"checkpoints, got {played[place, seed]} episodes of the seed {seed} and checkpoint {place}{note}; play "
            "each once."
        )


def replay_entry(entry: Entry, season: Season, episodes: Sequence[PlayedEpisode], seconds: float = math.inf) -> None:
    """Replays every reply and compares the result with the claim.

    Args:
        seconds: the most wall-clock time, looked at before each episode, whose replies have a most of characters.

    Raises:
        ValueError: as in `require_seeds`, or an episode differs from its replay; the error names the first.
        Refusal: it takes longer.
    """
    end = time.monotonic() + seconds
    require_seeds(entry, season, episodes)
    interaction = entry.task(season).build()
    starts = {start.seed: start for start in starts_of(interaction, season.board(entry.board).public_seeds())}
    for episode in episodes:
        if time.monotonic() > end:
            raise Refusal(f"a replay must take at most {seconds:g} seconds, got more; shorten replies.")
        replay_episode(interaction, starts[episode.seed], episode)


def replay_episode(interaction: Interaction[Any], start: RolloutRequest[Any], episode: PlayedEpisode) -> None:
    """Replays the replies of one episode.

    A truncated episode ends with pending requests, since a context did not fit; every other one ends without. A failed
    episode may end anywhere. Both have the outcome that `hf_credit_leaderboard.entries.counted` gives them.

    Raises:
        ValueError: the replay has other events, another ending or another outcome.
    """
    failed, failure = episode.ending == Ending.ERROR, counted(interaction, Ending.ERROR, 0.0)
    left = len(episode.replies)
    try:
        state = interaction.start(start.task, episode.seed)
        while (requests := interaction.pending(state)) and left:
            step = slice(len(episode.replies) - left, len(episode.replies) - left + len(requests))
            events, requested = list(episode.events[step]), [request.event for request in requests]
            if events != requested:
                raise _differs(episode, "its events", events, requested)
            left -= len(events)
            state = interaction.advance(state, list(episode.replies[step]))
        ending = str(Ending.TRUNCATED if requests else interaction.ending(state))
        outcome = counted(interaction, ending, float(interaction.outcome(state)))
    except Refusal:
        raise
    except Exception as error:
        if failed and episode.outcome == failure:
            return
        raise _differs(episode, "its replies", episode.ending, f"{type(error).__name__}: {error}"[:200]) from None
    if left:
        raise _differs(episode, "the number of its replies", len(episode.replies), len(episode.replies) - left)
    if failed and episode.outcome != failure:
        raise _differs(episode, "the outcome of a failure", episode.outcome, failure)
    if not failed and episode.ending != ending:
        raise _differs(episode, "its ending", episode.ending, ending)
    if not failed and abs(episode.outcome - outcome) > _TOLERANCE:
        raise _differs(episode, "its outcome", episode.outcome, outcome)


def _differs(episode: PlayedEpisode, name: str, claimed: Any, replayed: Any) -> Refusal:
    return Refusal(
        f"every episode must equal the replay of its replies, got {name} as {claimed!r} where the replay of seed "
        f"{episode.seed} of checkpoint {episode.checkpoint} gives {replayed!r}; submit what was played."
    )


# The second play against the claim


def compare(claimed: Sequence[PlayedEpisode], found: Sequence[PlayedEpisode]) -> dict[str, float]:
    """Returns the means of two plays of the same instances with the same checkpoints, and the paired p-value."""
    by_instance = {(one.checkpoint, one.seed): one.outcome for one in claimed}
    first, second = [by_instance[one.checkpoint, one.seed] for one in found], [one.outcome for one in found]
    return {"claimed": fmean(first), "found": fmean(second), "p": paired_p(first, second)}


def _notes(record: Record) -> list[str]:
    notes = []
    if len(record.tensors) == 1:
        notes.append("One training seed: the score describes this checkpoint, not the method.")
    if record.copy_of is not None:
        whose = "of this account" if record.copy_of in record.related else "from a repository of another account"
        notes.append(f"It has weights of the entry {record.copy_of}, listed first, {whose}; it is not ranked.")
    elif record.related:
        notes.append(
            f"It has weights of the same account's entry {', '.join(record.related)}, and is ranked in its place."
        )
    for digest in record.unknown_templates:
        notes.append(
            f"The season does not know its chat template ({digest[:12]}), and a template can play for a policy: it is "
            "not ranked until a maintainer accepts the template and it is played again."
        )
    if missing := [one for one in ISOLATION if one not in record.isolation]:
        notes.append(f"While it was played, this did not hold: {', '.join(missing)}.")
    return notes
