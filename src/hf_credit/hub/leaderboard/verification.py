"""Verification: the checkpoints of an entry are played again, on the public tasks and on the secret ones."""

from __future__ import annotations

import dataclasses
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from hf_credit.evaluation.runs import versions
from hf_credit.evaluation.statistics import permutation_test
from hf_credit.hub.leaderboard import credit_board, rerun
from hf_credit.hub.leaderboard.confined import ISOLATION, Limits, run_confined
from hf_credit.hub.leaderboard.entries import Checkpoint, Entry
from hf_credit.hub.leaderboard.records import REPLAYED, VERIFIED, Record, linked
from hf_credit.hub.leaderboard.replay import replay_entry, require_seeds
from hf_credit.hub.leaderboard.replies import PlayedEpisode
from hf_credit.hub.leaderboard.seasons import Season, SeasonSecret, secret_seeds
from hf_credit.hub.leaderboard.weights import (
    MOST_FILE_BYTES,
    check_folder,
    parameters,
    template_digest,
    tensor_digest,
)
from hf_credit.hub.loading import TooLarge

LEAST_P = 1e-3
"""A claim whose paired test against the re-run gives less is refused."""

Download = Callable[[str, str, int], Path]
"""The folder of `repo` at `commit`, with the files of `hf_credit.hub.leaderboard.weights.WANTED`.

It raises `TooLarge`, before it downloads any, where these have more than so many bytes together, and another
`ValueError` or an `OSError` where there is no such commit.
"""

_WIDEST = 8  # bytes of a parameter
_ROOM = 4 * MOST_FILE_BYTES  # for a tokenizer and the like, beside weights

Play = Callable[[Mapping[str, Any], Sequence[Path], Limits], dict[str, Any]]
"""Plays what `hf_credit.hub.leaderboard.rerun.answer` is asked, reading these folders, within limits."""


class Refusal(ValueError):
    """An entry is not listed; the message is the reason in one sentence."""


def confined_play(request: Mapping[str, Any], readable: Sequence[Path], limits: Limits) -> dict[str, Any]:
    """`rerun.answer` in a confined process.

    Raises:
        ConfinedError: it came to no result.
    """
    return _confined(rerun.__name__, request, readable, limits)


def replayed(entry: Entry, season: Season, episodes: Sequence[PlayedEpisode]) -> None:
    """Refuses an entry whose seeds or outcomes are not right.

    Raises:
        Refusal: of `require_seeds` or `replay_entry`.
    """
    try:
        require_seeds(entry, season, episodes)
        replay_entry(entry, season, episodes)
    except ValueError as error:
        raise Refusal(str(error)) from None


def verify_entry(
    name: str,
    entry: Entry,
    episodes: Sequence[PlayedEpisode],
    season: Season,
    secret: SeasonSecret,
    download: Download,
    *,
    listed: Sequence[Record] = (),
    limits: Limits | None = None,
    play: Play = confined_play,
) -> Record:
    """Replays an entry, plays its checkpoints again and says what was found.

    A claim stands if on the public tasks, pair by pair, the re-run does not differ from it: p >= 0.001 by
    `hf_credit.evaluation.statistics.permutation_test`. What ranks is the re-run's outcomes on the secret tasks. Where
    a checkpoint has more parameters than the limit, the entry is listed as `replayed`, without a rank.

    Args:
        name: the id of the entry.
        entry, episodes: as they were submitted.
        season, secret: whose tasks.
        download: fetches checkpoints.
        listed: records of the board, which copies are found among.
        limits, play: of the process that plays, and who starts it.

    Raises:
        Refusal: the entry is not listed, for the reason in the message.
    """
    limits = limits or Limits()
    replayed(entry, season, episodes)
    board = season.board(entry.board)
    seeds = {"public": board.public_seeds(), "secret": secret_seeds(secret.salt, board.name, board.secret)}
    try:
        folders = [_folders(one, download, limits) for one in entry.checkpoints]
        tensors = [tensor_digest(folder) for folder, _ in folders]
        if len(set(tensors)) < len(tensors):
            raise ValueError(
                "every checkpoint of an entry must be a training run of its own, got the same weights twice; name "
                "each once."
            )
        request = {
            "checkpoints": [[str(folder), None if base is None else str(base)] for folder, base in folders],
            "spec": entry.task(season).to_dict(),
            "seeds": seeds,
            "device": limits.device,
        }
        found = play(request, [path for pair in folders for path in pair if path is not None], limits)
    except TooLarge as error:
        return Record(
            entry=name,
            season=season.name,
            board=board.name,
            badge=REPLAYED,
            notes=(f"Every reply was executed again; the checkpoints were not: {error}",),
            versions=versions(),
        )
    except (ValueError, OSError) as error:
        raise Refusal(one_line(error)) from None
    again = {kind: [_episode(one) for one in played] for kind, played in found["episodes"].items()}
    public = compare(episodes, again["public"])
    if public["p"] < LEAST_P:
        raise Refusal(
            f"a claim must survive being played again, got {public['claimed']:.3f} claimed and {public['found']:.3f} "
            f"found on the public tasks (paired test, p = {public['p']:.2g} < {LEAST_P:g}); submit the replies of the "
            "checkpoint that you name."
        )
    outcomes = outcome_rows(again["secret"], len(entry.checkpoints), seeds["secret"])
    templates = {template_digest(text): text for text in found["templates"]}
    record = Record(
        entry=name,
        season=season.name,
        board=board.name,
        badge=VERIFIED,
        public=public,
        secret=outcomes,
        tokens=fmean(sum(one.tokens) for one in again["secret"]),
        owners=tuple(one.repo.partition("/")[0] for one in entry.checkpoints),
        tensors=tuple(tensors),
        templates=tuple(template_digest(text) for text in found["templates"]),
        unknown_templates={name: text for name, text in templates.items() if name not in season.templates},
        prints=tuple(tuple(one) for one in found["prints"]),
        parameters=max(parameters(folder) + (parameters(base) if base else 0) for folder, base in folders),
        isolation=tuple(found.get("isolation", ())),
        versions=versions(),
    )
    record = linked(record, listed)
    return dataclasses.replace(record, notes=tuple(_notes(record)))


def confined_credit(request: Mapping[str, Any], readable: Sequence[Path], limits: Limits) -> dict[str, Any]:
    """`credit_board.answer` in a confined process.

    Raises:
        ConfinedError: it came to no result.
    """
    return _confined(credit_board.__name__, request, readable, limits)


def verify_credit(
    name: str,
    entry: Entry,
    episodes: Sequence[PlayedEpisode],
    season: Season,
    secret: SeasonSecret,
    benchmark: Path,
    *,
    limits: Limits | None = None,
    play: Play = confined_credit,
) -> Record:
    """Measures a method's credit again, on the public rows and on secret ones, and says what was found.

    What ranks is the fidelity of each repeat on the secret rows.

    Args:
        name, entry, episodes, season, secret, limits, play: as in `verify_entry`.
        benchmark: the folder that holds the policies of the season.

    Raises:
        Refusal: as in `verify_entry`.
    """
    limits = limits or Limits()
    task = season.credit_board(entry.board)
    policy = benchmark / task.policy
    try:
        if [one.seed for one in episodes] != list(range(task.repeats)):
            raise ValueError(
                f"credit must be measured in the repeats 0 to {task.repeats - 1}, got others; measure it."
            )
        credit_board.board_method(entry.method)
        if tensor_digest(policy) != task.policy_digest:
            raise ValueError(f"the policy of the board {task.name!r} must be the season's, got other weights.")
        request = {
            "method": dict(entry.method),
            "task": dataclasses.asdict(task),
            "device": limits.device,
            "seeds": {
                "public": task.public_seeds(),
                "secret": secret_seeds(secret.salt, task.name, task.instances),
            },
        }
        with tempfile.TemporaryDirectory(prefix="hf-credit-policy-") as folder:
            # The cache holds links to files that lie elsewhere, where the process may not read.
            plain = Path(shutil.copytree(policy, Path(folder) / "policy"))
            found = play({**request, "policy": str(plain)}, [plain], limits)
    except (ValueError, OSError) as error:
        raise Refusal(one_line(error)) from None
    public = compare(episodes, [_episode(one) for one in found["episodes"]["public"]])
    if public["p"] < LEAST_P:
        raise Refusal(
            f"a claim must survive being measured again, got a fidelity of {public['claimed']:.3f} claimed and "
            f"{public['found']:.3f} found on the public rows (paired test, p = {public['p']:.2g} < {LEAST_P:g}); "
            "submit what hf-credit submit --method measures."
        )
    scores = dict(found["scores"]["secret"])
    fidelity = tuple(scores.pop("fidelity"))
    return Record(
        entry=name,
        season=season.name,
        board=task.name,
        badge=VERIFIED,
        public=public,
        secret=(fidelity,),
        scores={key: None if math.isnan(value) else value for key, value in scores.items()},
        tokens=scores["tokens"],
        isolation=tuple(found.get("isolation", ())),
        versions=versions(),
    )


def compare(claimed: Sequence[PlayedEpisode], found: Sequence[PlayedEpisode]) -> dict[str, float]:
    """The means of two plays of the same instances with the same checkpoints, and the p-value between them."""
    pairs = {(one.checkpoint, one.seed): one.outcome for one in claimed}
    own = [pairs[one.checkpoint, one.seed] for one in found]
    theirs = [one.outcome for one in found]
    test = permutation_test(own, theirs)
    return {"claimed": fmean(own), "found": fmean(theirs), "p": test.p_value if np.ptp([own, theirs]) else 1.0}


def outcome_rows(
    episodes: Sequence[PlayedEpisode], checkpoints: int, seeds: Sequence[int]
) -> tuple[tuple[float, ...], ...]:
    """The outcome of each checkpoint on each instance."""
    found = {(one.checkpoint, one.seed): one.outcome for one in episodes}
    return tuple(tuple(found[place, seed] for seed in seeds) for place in range(checkpoints))


def _folders(one: Checkpoint, download: Download, limits: Limits) -> tuple[Path, Path | None]:
    most_bytes = _WIDEST * limits.parameters + _ROOM
    folder = download(one.repo, one.commit, most_bytes)
    check_folder(folder)
    base = None
    size = parameters(folder)
    if one.base is not None:
        name, _, commit = one.base.partition("@")
        base = download(name, commit, most_bytes)
        check_folder(base)
        size += parameters(base)
    if size > limits.parameters:
        raise TooLarge(
            f"a checkpoint must have at most {limits.parameters} parameters, got {size} in {one.repo}; ask the "
            "maintainers of the board for a larger verifier."
        )
    return folder, base


def _confined(module: str, request: Mapping[str, Any], readable: Sequence[Path], limits: Limits) -> dict[str, Any]:
    work = Path(tempfile.mkdtemp(prefix="hf-credit-verification-"))
    try:
        return run_confined(module, request, work, readable, limits)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _episode(values: Mapping[str, Any]) -> PlayedEpisode:
    rows = {name: tuple(values[name]) for name in ("events", "replies", "tokens")}
    return PlayedEpisode(**{**values, **rows})


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
