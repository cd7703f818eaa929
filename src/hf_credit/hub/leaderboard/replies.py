"""Every reply behind an entry, as parquet: written plainly, and read from strangers in a process with limits.

What the file says of its own size is looked at before anything is read, and what is read then may not take more memory
or time than an honest file of so many episodes does.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hf_credit.hub.leaderboard import parquet_reader
from hf_credit.rollouts.episode import Ending, Episode

MOST_FILE_BYTES = 64 * 2**20
MOST_REPLIES = 4096
"""Of an episode."""

MOST_CHARACTERS = 2**17
"""Of a reply."""

_MOST_ERROR = 500  # characters


@dataclass(frozen=True, kw_only=True)
class PlayedEpisode:
    """What a policy did on one instance, and what it says came of it.

    Attributes:
        checkpoint: the place of the checkpoint among those of the entry.
        seed: of the instance.
        ending: as in `hf_credit.rollouts.Ending`.
        outcome: what the walk was worth.
        events: the event of each reply.
        replies: the text of each, in the order in which they were made.
        tokens: how many tokens each took.
        error: the failure in one line, where it ended in one.
    """

    checkpoint: int
    seed: int
    ending: str
    outcome: float
    events: tuple[str, ...]
    replies: tuple[str, ...]
    tokens: tuple[int, ...]
    error: str | None = None

    @classmethod
    def of(cls, checkpoint: int, seed: int, episode: Episode) -> PlayedEpisode:
        """The record of an episode."""
        return cls(
            checkpoint=checkpoint,
            seed=seed,
            ending=str(episode.ending),
            outcome=episode.outcome,
            events=tuple(one.event for one in episode.decisions),
            replies=tuple(_whole_text(one.action_text) for one in episode.decisions),
            tokens=tuple(len(one.action_ids) for one in episode.decisions),
            error=None if episode.error is None else _whole_text(episode.error)[:_MOST_ERROR],
        )

    def __post_init__(self) -> None:
        if self.ending not in {str(one) for one in Ending}:
            raise ValueError(f"an ending must be one of {', '.join(Ending)}, got {self.ending[:40]!r}; correct it.")
        if not math.isfinite(self.outcome):
            raise ValueError(
                f"an outcome must be a finite number, got {self.outcome} for seed {self.seed}; correct it."
            )
        if not len(self.events) == len(self.replies) == len(self.tokens) <= MOST_REPLIES:
            raise ValueError(
                f"an episode must have an event and a number of tokens for each of at most {MOST_REPLIES} replies, "
                f"got {len(self.events)}, {len(self.tokens)} and {len(self.replies)}; record it again."
            )
        for reply in self.replies:
            if len(reply) > MOST_CHARACTERS:
                raise ValueError(f"a reply must have at most {MOST_CHARACTERS} characters, got {len(reply)}.")
        if any(count < 0 for count in self.tokens):
            raise ValueError("a reply must have a number of tokens, got a negative one; record it again.")


def write_replies(episodes: Sequence[PlayedEpisode], path: str | Path) -> Path:
    """Writes episodes as parquet; the same episodes give the same bytes with the same pyarrow.

    Args:
        episodes: of all checkpoints of an entry.
        path: the file.
    """
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.Table.from_pylist([asdict(one) for one in episodes], schema=parquet_reader.schema())
    parquet.write_table(table, str(path), compression="zstd")
    return Path(path)


def read_replies(path: str | Path, rows: int) -> list[PlayedEpisode]:
    """The episodes of a file from elsewhere, read by a process of its own with limits of memory and time.

    Args:
        path: the file.
        rows: how many episodes it must hold, exactly.

    Raises:
        ValueError: it is something else, too large, or breaks a limit while it is read.
    """
    path = Path(path)
    if path.stat().st_size > MOST_FILE_BYTES:
        raise ValueError(
            f"the file of replies must have at most {MOST_FILE_BYTES} bytes, got {path.stat().st_size}; "
            "shorten replies."
        )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "replies.jsonl"
        command = [sys.executable, "-I", parquet_reader.__file__, str(path.resolve()), str(out), str(rows)]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=2 * parquet_reader.SECONDS, env={}, check=False, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise _beyond("time") from None
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()
        if done.returncode == parquet_reader.REFUSED:
            raise ValueError(told[-1] if told else "the file of replies must be readable, got another one.")
        if done.returncode != 0 or not out.is_file():
            raise _beyond("memory or time")
        with out.open(encoding="utf-8") as lines:
            return [_episode(json.loads(line)) for line in lines]


def _beyond(what: str) -> ValueError:
    return ValueError(f"the file of replies must be read within limits, got one that took more {what}; shorten it.")


def _episode(values: dict[str, Any]) -> PlayedEpisode:
    return PlayedEpisode(**{**values, **{name: tuple(values[name]) for name in ("events", "replies", "tokens")}})


def _whole_text(text: str) -> str:
    """A text without halves of surrogate pairs, which a broken reply can leave behind and parquet cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
