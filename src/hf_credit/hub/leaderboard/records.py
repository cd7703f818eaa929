"""What a verifier found of an entry, signed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hf_credit.hub.leaderboard.inputs import mapping
from hf_credit.hub.leaderboard.seasons import Season, SeasonSecret, signed_by
from hf_credit.untrusted import parse_json

SELF_REPORTED, REPLAYED, VERIFIED = "self-reported", "replayed", "verified"
BADGES = (SELF_REPORTED, REPLAYED, VERIFIED)
"""What was checked: form and seeds; that the replies lead to the outcomes; that the checkpoint does it again."""

_SAME_PRINT = 0.05
"""Nats. A copy with noise on its weights stays below it; policies that were trained apart differ by whole nats."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was found of one entry.

    Attributes:
        entry: its id.
        season, board: by their names.
        badge: the best that it came to, one of `BADGES`.
        notes: what a reader must know, a sentence each.
        copy_of: the id of the entry whose checkpoints it shows again.
        public: `claimed` and `found` means on the public tasks, and the `p` of the paired test between them.
        secret: of each checkpoint, its outcome on each secret task, in the order of the tasks.
        scores: of a credit entry, what it was scored by, by name.
        tokens: mean tokens of an episode on the secret tasks.
        tensors, templates: of each checkpoint, digests of its weights and of its chat template.
        prints: of each checkpoint, the policy's print on secret tasks (`hf_credit.hub.leaderboard.rerun`).
        parameters: of the largest checkpoint.
        isolation: what confined the process that played.
        versions: that the verifier ran.
    """

    entry: str
    season: str
    board: str
    badge: str
    notes: tuple[str, ...] = ()
    copy_of: str | None = None
    public: Mapping[str, float] = field(default_factory=dict)
    secret: tuple[tuple[float, ...], ...] = ()
    scores: Mapping[str, Any] = field(default_factory=dict)
    tokens: float | None = None
    tensors: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    prints: tuple[tuple[float, ...], ...] = ()
    parameters: int = 0
    isolation: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def ranked(self) -> bool:
        """Whether it has a place of its own: verified, and no copy."""
        return self.badge == VERIFIED and self.copy_of is None

    def signed(self, secret: SeasonSecret) -> bytes:
        """As the file of a record, with the season's signature."""
        values = json.loads(json.dumps(dataclasses.asdict(self)))
        return json.dumps({"record": values, "signature": secret.sign(values)}, indent=1).encode("utf-8") + b"\n"

    @classmethod
    def read(cls, content: bytes, season: Season) -> Record:
        """The record of a file.

        Raises:
            ValueError: it is something else, or not signed with the season's key.
        """
        # A record is as long as its season has tasks; its signature says that the verifier wrote it.
        outer = mapping(parse_json(content.decode("utf-8", "replace")), "a record", frozenset({"record", "signature"}))
        values = outer["record"]
        if not signed_by(season.public_key, values, outer["signature"]):
            raise ValueError(
                f"a record must be signed with the key of the season {season.name!r}, got another signature; verify "
                "the entry again."
            )
        fixed = {name: tuple(values[name]) for name in ("notes", "tensors", "templates", "isolation")}
        rows = {name: tuple(tuple(row) for row in values[name]) for name in ("secret", "prints")}
        return cls(**{**values, **fixed, **rows})


def record_path(name: str) -> str:
    """Where the record of an entry lies in the results."""
    return f"records/{name}.json"


def copied_from(
    tensors: Sequence[str],
    prints: Sequence[Sequence[float]],
    secret: Sequence[Sequence[float]],
    listed: Sequence[Record],
) -> str | None:
    """The listed entry whose checkpoints these are: by equal tensors, or by equal prints and outcomes.

    Args:
        tensors, prints, secret: of the checkpoints of the new entry.
        listed: records in the order of listing.
    """
    for record in listed:
        if set(tensors) & set(record.tensors):
            return record.copy_of or record.entry
        for own, outcomes in zip(prints, secret, strict=True):
            for theirs, other in zip(record.prints, record.secret, strict=True):
                if tuple(outcomes) == other and _same_print(own, theirs):
                    return record.copy_of or record.entry
    return None


def _same_print(own: Sequence[float], theirs: Sequence[float]) -> bool:
    if len(own) != len(theirs) or not own:
        return False
    return bool(np.abs(np.subtract(own, theirs)).max() <= _SAME_PRINT)
