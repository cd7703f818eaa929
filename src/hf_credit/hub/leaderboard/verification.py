"""Verification: every reply of an entry is said again, and its checkpoints, or its method's credit, are played again.

What a stranger sent is looked at here as values alone. Checkpoints are loaded and played by a confined process
(`hf_credit.hub.leaderboard.confined`), after a look at their files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from hf_credit.evaluation.runs import versions
from hf_credit.evaluation.statistics import permutation_test
from hf_credit.hub.leaderboard.confined import ISOLATION, Limits, confined_play
from hf_credit.hub.leaderboard.credit_board import board_method
from hf_credit.hub.leaderboard.entries import Checkpoint, Entry, PlayedEpisode
from hf_credit.hub.leaderboard.inputs import from_plain, pinned
from hf_credit.hub.leaderboard.records import REPLAYED, VERIFIED, Record, linked
from hf_credit.hub.leaderboard.seasons import Season, SeasonSecret, secret_seeds, starts_of
from hf_credit.hub.leaderboard.weights import (
    MOST_FILE_BYTES,
    check_folder,
    parameters,
    template_digest,
    tensor_digest,
)
from hf_credit.hub.loading import TooLarge
from hf_credit.rollouts import Ending, Interaction, RolloutRequest

LEAST_P = 1e-3
"""A claim whose paired test against the re-run gives less is refused."""

Download = Callable[[str, str, int], Path]
"""The folder of `repo` at `commit`, with the files of `hf_credit.hub.leaderboard.weights.WANTED`.

It raises `TooLarge`, before it downloads any, where these have more than so many bytes together, and another
`ValueError` or an `OSError` where there is no such commit.
"""

Play = Callable[[Mapping[str, Any], Sequence[Path], Limits], dict[str, Any]]
"""Plays what `hf_credit.hub.leaderboard.playing.answer` is asked, reading these folders, within limits."""

_WIDEST = 8  # bytes of a parameter
_ROOM = 4 * MOST_FILE_BYTES  # for a tokenizer and the like, beside weights
_TOLERANCE = 1e-9  # of an outcome that is replayed


class Refusal(ValueError):
    """An entry is not listed; the message is the reason in one sentence."""


def verify_entry(
    name: str,
    entry: Entry,
    episodes: Sequence[PlayedEpisode],
    season: Season,
    secret: SeasonSecret,
    source: Download | Path,
    *,
    listed: Sequence[Record] = (),
    limits: Limits | None = None,
    play: Play = confined_play,
) -> Record:
    """Checks an entry, plays it again and says what was found.

    A policy's replies are said again, and its checkpoints are played on the public tasks and on the secret ones. A
    method's credit is measured again, on the public rows and on secret ones. A claim stands if on the public ones,
    pair by pair, the re-run does not differ from it: p >= 0.001 by
    `hf_credit.evaluation.statistics.permutation_test`. What ranks is the re-run's outcomes on the secret ones; of
    credit, the fidelity of each repeat. Where a checkpoint has more parameters than the limit, the entry is listed as
    `replayed`, without a rank.

    Args:
        name: the id of the entry.
        entry, episodes: as they were submitted.
        season, secret: whose tasks.
        source: of checkpoints what fetches them; of credit the folder that holds the policies of the season.
        listed: records of the board, which copies are found among.
        limits, play: of the process that plays, and who starts it.

    Raises:
        Refusal: the entry is not listed, for the reason in the message.
    """
    limits = limits or Limits()
    known: dict[str, Any] = {"entry": name, "season": season.name, "board": entry.board, "versions": versions()}
    asked = _policy_request if entry.kind == "policy" else _credit_request
    try:
        with asked(entry, episodes, season, secret, source, limits) as (request, readable, of_weights):
            found = play({**request, "kind": entry.kind, "device": limits.device}, readable, limits)
    except TooLarge as error:
        note = f"Every reply was executed again; the checkpoints were not: {error}"
        return Record(**known, badge=REPLAYED, notes=(note,))
    except (ValueError, OSError) as error:
        raise Refusal(one_line(error)) from None
    again = {
        kind: [from_plain(PlayedEpisode, one, "an episode") for one in played]
        for kind, played in found["episodes"].items()
    }
    public = compare(episodes, again["public"])
    if public["p"] < LEAST_P:
        raise Refusal(
            f"a claim must survive being played again, got {public['claimed']:.3f} claimed and {public['found']:.3f} "
            f"found on the public tasks (paired test, p = {public['p']:.2g} < {LEAST_P:g}); submit what hf-credit "
            "submit plays with what you name."
        )
    known |= {"badge": VERIFIED, "public": public, "isolation": tuple(found.get("isolation", ()))}
    if entry.kind == "credit":
        scores = {key: value for key, value in found["scores"]["secret"].items() if key != "fidelity"}
        return Record(
            **known,
            secret=(tuple(found["scores"]["secret"]["fidelity"]),),
            scores={key: None if math.isnan(value) else value for key, value in scores.items()},
            tokens=scores["tokens"],
        )
    templates = {template_digest(text): text for text in found["templates"]}
    record = Record(
        **known,
        **of_weights,
        secret=outcome_rows(again["secret"], len(entry.checkpoints), request["seeds"]["secret"]),
        tokens=fmean(sum(one.tokens) for one in again["secret"]),
        owners=tuple(one.repo.partition("/")[0] for one in entry.checkpoints),
        templates=tuple(template_digest(text) for text in found["templates"]),
        unknown_templates={digest: text for digest, text in templates.items() if digest not in season.templates},
        prints=tuple(tuple(one) for one in found["prints"]),
    )
    record = linked(record, listed)
    return dataclasses.replace(record, notes=tuple(_notes(record)))


_Asked = tuple[dict[str, Any], list[Path], dict[str, Any]]
"""What is asked of who plays, the folders that it reads, and what is known of weights for the record."""


@contextlib.contextmanager
def _policy_request(
    entry: Entry,
    episodes: Sequence[PlayedEpisode],
    season: Season,
    secret: SeasonSecret,
    download: Any,
    limits: Limits,
) -> Iterator[_Asked]:
    require_seeds(entry, season, episodes)
    replay_entry(entry, season, episodes)
    board = season.board(entry.board)
    folders = [_folders(one, download, limits) for one in entry.checkpoints]
    tensors = tuple(tensor_digest(folder) for folder, _ in folders)
    if len(set(tensors)) < len(tensors):
        raise ValueError(
            "every checkpoint of an entry must be a training run of its own, got the same weights twice; name each "
            "once."
        )
    request = {
        "checkpoints": [[str(folder), base and str(base)] for folder, base in folders],
        "spec": entry.task(season).to_dict(),
        "seeds": {"public": board.public_seeds(), "secret": secret_seeds(secret.salt, board.name, board.secret)},
    }
    size = max(parameters(folder) + (parameters(base) if base else 0) for folder, base in folders)
    yield request, [path for pair in folders for path in pair if path], {"tensors": tensors, "parameters": size}


@contextlib.contextmanager
def _credit_request(
    entry: Entry,
    episodes: Sequence[PlayedEpisode],
    season: Season,
    secret: SeasonSecret,
    benchmark: Any,
    limits: Limits,
) -> Iterator[_Asked]:
    task = season.credit_board(entry.board)
    if [one.seed for one in episodes] != list(range(task.repeats)):
        raise ValueError(f"credit must be measured in the repeats 0 to {task.repeats - 1}, got others; measure it.")
    board_method(entry.method)
    if tensor_digest(benchmark / task.policy) != task.policy_digest:
        raise ValueError(f"the policy of the board {task.name!r} must be the season's, got other weights; fetch it.")
    with tempfile.TemporaryDirectory(prefix="hf-credit-policy-") as folder:
        # The cache holds links to files that lie elsewhere, where the process may not read.
        policy = Path(shutil.copytree(benchmark / task.policy, Path(folder) / "policy"))
        request = {
            "method": dict(entry.method),
            "task": dataclasses.asdict(task),
            "policy": str(policy),
            "seeds": {
                "public": task.public_seeds(),
                "secret": secret_seeds(secret.salt, task.name, task.instances),
            },
        }
        yield request, [policy], {}


def _folders(one: Checkpoint, download: Download, limits: Limits) -> tuple[Path, Path | None]:
    """The folder of a checkpoint and that of its base, looked at before anything is loaded from them."""
    most_bytes = _WIDEST * limits.parameters + _ROOM
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


# Every reply said again to the rules


def require_seeds(entry: Entry, season: Season, episodes: Sequence[PlayedEpisode]) -> None:
    """Refuses episodes other than one of each checkpoint on each public task.

    Raises:
        ValueError: a seed is missing, comes twice or is not one of the public tasks, as those of training are not.
    """
    wanted = season.board(entry.board).public_seeds()
    played = Counter((one.checkpoint, one.seed) for one in episodes)
    for (place, seed), times in played.items():
        if not 0 <= place < len(entry.checkpoints):
            raise ValueError(f"an episode must be of a checkpoint of the entry, got one of number {place}; remove it.")
        if not wanted[0] <= seed <= wanted[-1]:
            kind = "a task of training" if 0 <= seed < 2**31 else "no task of this board"
            raise ValueError(
                f"an entry must be played on the public tasks {wanted[0]} to {wanted[-1]}, got the seed {seed} of "
                f"checkpoint {place}, {kind}; play the public tasks."
            )
        if times > 1:
            raise ValueError(
                f"every public task must be played once, got the seed {seed} of checkpoint {place} more than once; "
                "keep the first."
            )
    for place in range(len(entry.checkpoints)):
        if missing := [seed for seed in wanted if (place, seed) not in played]:
            raise ValueError(
                f"every public task must be played, got none of checkpoint {place} for the seed {missing[0]} and "
                f"{len(missing) - 1} others; play them too."
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
    failed = episode.ending == Ending.ERROR
    left = len(episode.replies)
    try:
        for state, requests, step in replayed_steps(interaction, start, episode):  # noqa: B007 (the last one is used)
            events = [event for event, _, _ in step]
            if step and events != [request.event for request in requests]:
                raise _differs(episode, "its events", events, [request.event for request in requests])
            left -= len(step)
        ending = str(Ending.TRUNCATED if requests else interaction.ending(state))
        outcome = float(interaction.outcome(state))
    except _ReplayError:
        raise
    except Exception as error:
        if failed and episode.outcome == 0:
            return
        raise _differs(episode, "its course", episode.ending, f"{type(error).__name__}: {error}"[:200]) from None
    if left:
        raise _differs(episode, "the number of its replies", len(episode.replies), len(episode.replies) - left)
    if failed and episode.outcome != 0:
        raise _differs(episode, "the outcome of a failure", episode.outcome, 0.0)
    if not failed and episode.ending != ending:
        raise _differs(episode, "its ending", episode.ending, ending)
    if not failed and abs(episode.outcome - outcome) > _TOLERANCE:
        raise _differs(episode, "its outcome", episode.outcome, outcome)


def replayed_steps(
    interaction: Interaction[Any], start: RolloutRequest[Any], episode: PlayedEpisode
) -> Iterator[tuple[Any, Sequence[Any], list[tuple[str, str, int]]]]:
    """The steps of an episode: the state before each, its requests, and (event, reply, tokens) to each of them.

    At last comes the state in which the replies or the requests end, without replies or with too few.
    """
    replies = list(zip(episode.events, episode.replies, episode.tokens, strict=True))
    state = interaction.start(start.task, episode.seed)
    while True:
        requests = interaction.pending(state)
        step, replies = replies[: len(requests)], replies[len(requests) :]
        yield state, requests, step
        if not step or len(step) < len(requests):
            return
        state = interaction.advance(state, [text for _, text, _ in step])


class _ReplayError(ValueError):
    """An episode that is not what comes of its replies."""


def _differs(episode: PlayedEpisode, what: str, claimed: Any, found: Any) -> _ReplayError:
    return _ReplayError(
        f"every episode must be what comes of its replies, got {what} as {claimed!r} where the replay of seed "
        f"{episode.seed} of checkpoint {episode.checkpoint} gives {found!r}; submit what was played."
    )


# What the re-run says of the claim


def compare(claimed: Sequence[PlayedEpisode], found: Sequence[PlayedEpisode]) -> dict[str, float]:
    """The means of two plays of the same instances with the same checkpoints, and the p-value between them."""
    pairs = {(one.checkpoint, one.seed): one.outcome for one in claimed}
    ours, theirs = [pairs[one.checkpoint, one.seed] for one in found], [one.outcome for one in found]
    p_value = permutation_test(ours, theirs).p_value if np.ptp([ours, theirs]) else 1.0
    return {"claimed": fmean(ours), "found": fmean(theirs), "p": p_value}


def outcome_rows(
    episodes: Sequence[PlayedEpisode], checkpoints: int, seeds: Sequence[int]
) -> tuple[tuple[float, ...], ...]:
    """The outcome of each checkpoint on each instance."""
    found = {(one.checkpoint, one.seed): one.outcome for one in episodes}
    return tuple(tuple(found[place, seed] for seed in seeds) for place in range(checkpoints))


def _notes(record: Record) -> list[str]:
    notes = []
    if len(record.tensors) == 1:
        notes.append("One training seed: it says what this checkpoint does, not what the method does.")
    if record.copy_of is not None:
        notes.append(
            f"It shows weights of the entry {record.copy_of}, which was listed first, from the repository of another "
            "account; it has no rank of its own."
        )
    elif record.related:
        notes.append(f"It shows weights of the same account's entry {', '.join(record.related)} again.")
    for digest in record.unknown_templates:
        notes.append(
            f"The season did not know its chat template ({digest[:12]}), and a template can play for a policy: it has "
            "no rank until a maintainer accepts the template."
        )
    if missing := [one for one in ISOLATION if one not in record.isolation]:
        notes.append(f"While it was played, this did not hold: {', '.join(missing)}.")
    return notes


def one_line(error: Exception) -> str:
    """What an error says, in its first line and at most 1000 characters; its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:1000]
