"""What a verifier found of an entry, signed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hf_credit.hub.leaderboard.inputs import from_plain, mapping, to_json
from hf_credit.hub.leaderboard.seasons import Season, SeasonSecret, signed_by
from hf_credit.safe_io import parse_json

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
        copy_of: the id of an earlier entry that shows the same weights from another account's repository.
        related: the ids of earlier entries that show the same weights from a repository of the same account.
        public: `claimed` and `found` means on the public tasks, and the `p` of the paired test between them.
        secret: of each checkpoint, its outcome on each secret task, in the order of the tasks.
        scores: of a credit entry, what it was scored by, by name.
        tokens: mean tokens of an episode on the secret tasks.
        owners: of each checkpoint, the account whose repository holds it.
        tensors, templates: of each checkpoint, digests of its weights and of its chat template.
        unknown_templates: the templates that the season did not know, as text by digest.
        prints: of each checkpoint, log-probabilities at public prompts (`hf_credit.hub.leaderboard.playing`).
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
    related: tuple[str, ...] = ()
    public: Mapping[str, float] = field(default_factory=dict)
    secret: tuple[tuple[float, ...], ...] = ()
    scores: Mapping[str, Any] = field(default_factory=dict)
    tokens: float | None = None
    owners: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    unknown_templates: Mapping[str, str] = field(default_factory=dict)
    prints: tuple[tuple[float, ...], ...] = ()
    parameters: int = 0
    isolation: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def ranked_in(self, season: Season) -> bool:
        """Whether it has a place of its own: verified, no copy, and of templates that the season knows by now."""
        return self.badge == VERIFIED and self.copy_of is None and set(self.templates) <= set(season.templates)

    def signed(self, secret: SeasonSecret) -> bytes:
        """As the file of a record, with the season's signature."""
        values = dataclasses.asdict(self)
        return to_json({"record": values, "signature": secret.sign(values)})

    @classmethod
    def read(cls, content: bytes, season: Season) -> Record:
        """The record of a file.

        Raises:
            ValueError: it is something else, or not signed with the season's key.
        """
        # A record is as long as its season has tasks; its signature says that the verifier wrote it.
        outer = mapping(parse_json(content.decode("utf-8", "replace")), "a record", frozenset({"record", "signature"}))
        if not signed_by(season.public_key, outer["record"], outer["signature"]):
            raise ValueError(
                f"a record must be signed with the key of the season {season.name!r}, got another signature; verify "
                "the entry again."
            )
        record: Record = from_plain(cls, outer["record"], "a record")
        return record


def record_path(name: str) -> str:
    """Where the record of an entry lies in the results."""
    return f"records/{name}.json"


def linked(record: Record, listed: Sequence[Record]) -> Record:
    """The record with its links to entries whose checkpoints it shows again: by equal tensors, or by equal outcomes
    and log-probabilities within 0.05 nats.

    Only an account itself can publish under its name. Weights that an earlier entry shows from a repository of another
    account make a copy; weights from a repository of the same account are its own, and are linked alone.

    Args:
        record: of the new entry.
        listed: of the board.
    """
    # What is a copy itself comes last: it does not make its original one.
    known = [
        (one.entry, owner, own)
        for one in sorted(listed, key=lambda one: one.copy_of is not None)
        for owner, own in zip(one.owners, _weights(one), strict=True)
    ]
    copy_of: str | None = None
    related: dict[str, None] = {}
    for account, weights in zip(record.owners, _weights(record), strict=True):
        found = [(entry, owner.casefold() == account.casefold()) for entry, owner, own in known if _same(weights, own)]
        if found and not found[0][1]:
            copy_of = copy_of or found[0][0]
        related |= {entry: None for entry, is_own in found if is_own}
    return dataclasses.replace(record, copy_of=copy_of, related=tuple(related))


_Weights = tuple[str, Sequence[float], Sequence[float]]


def _weights(record: Record) -> list[_Weights]:
    """Of each checkpoint its digest, its log-probabilities and its outcomes."""
    return list(zip(record.tensors, record.prints, record.secret, strict=True))


def _same(one: _Weights, other: _Weights) -> bool:
    (digest, prints, outcomes), (digest_too, prints_too, outcomes_too) = one, other
    if digest == digest_too:
        return True
    if not prints or len(prints) != len(prints_too) or tuple(outcomes) != tuple(outcomes_too):
        return False
    return bool(np.abs(np.subtract(prints, prints_too)).max() <= _SAME_PRINT)
