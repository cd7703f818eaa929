"""The signed record of an entry's verification."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hf_credit.boundary import read
from hf_credit.safe_io import parse_json
from hf_credit_leaderboard.inputs import mapping, to_json
from hf_credit_leaderboard.seasons import Season, SeasonSecret, signed_by

SELF_REPORTED, REPLAYED, VERIFIED = "self-reported", "replayed", "verified"
BADGES = (SELF_REPORTED, REPLAYED, VERIFIED)
"""Cumulative checks: form and seeds; a replay of all replies; a second play of the checkpoints."""

_SAME_PRINT = 0.05
"""Nats. A copy with noise on its weights differs by less; policies of separate training runs differ by whole nats."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The verification result of one entry.

    Attributes:
        entry: the id of the entry.
        season, board: the names of the season and the board.
        badge: the highest badge that the entry earned, one of `BADGES`.
        notes: caveats for readers, one sentence each.
        copy_of: the id of an earlier entry with the same weights in a repository of another account.
        related: the ids of earlier entries with the same weights in a repository of the same account.
        public: the `claimed` and `found` means on the public tasks, and the `p` of the paired test between them.
        secret: the outcomes on the secret tasks, [checkpoints][tasks], tasks in their order.
        scores: the scores of a credit entry, by name.
        tokens: the mean number of tokens per episode on the secret tasks.
        owners: the account whose repository holds each checkpoint.
        tensors, templates: the digests of the weights and the chat template of each checkpoint.
        unknown_templates: the templates that the season does not know, as text by digest.
        prints: log-probabilities of each checkpoint at public prompts (`hf_credit_leaderboard.playing`).
        parameters: the number of parameters of the largest checkpoint.
        isolation: the restrictions on the process that played.
        versions: the package versions of the verifier.
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
        """Returns whether the entry is ranked: verified, no copy, and all its templates known to the season."""
        return self.badge == VERIFIED and self.copy_of is None and set(self.templates) <= set(season.templates)

    def signed(self, secret: SeasonSecret) -> bytes:
        """Serializes the record as a file with the season's signature."""
        values = dataclasses.asdict(self)
        return to_json({"record": values, "signature": secret.sign(values)})

    @classmethod
    def read(cls, content: bytes, season: Season) -> Record:
        """Parses the file of a record.

        Raises:
            ValueError: `content` is no record, or not signed with the season's key.
        """
        # Its length grows with the season's tasks, so `strict_json` and its limit do not apply; the signature does.
        outer = mapping(parse_json(content.decode("utf-8", "replace")), "a record", frozenset({"record", "signature"}))
        if not signed_by(season.public_key, outer["record"], outer["signature"]):
            raise ValueError(
                f"a record must be signed with the key of the season {season.name!r}, got another signature; verify "
                "the entry again."
            )
        record: Record = read(cls, outer["record"], "a record")
        return record


def record_path(name: str) -> str:
    """Returns the path of an entry's record in the results."""
    return f"records/{name}.json"


def linked(record: Record, listed: Sequence[Record]) -> Record:
    """Returns the record with links to listed entries that have the same weights: equal tensors, or equal outcomes and
    log-probabilities within 0.05 nats.

    Only an account can publish under its name. Weights that an earlier entry has from a repository of another account
    make the new entry a copy (`copy_of`); weights from a repository of the same account only link it (`related`).
    """
    # Copies come last, so that no copy makes its original a copy.
    known = [
        (earlier.entry, owner, weights)
        for earlier in sorted(listed, key=lambda one: one.copy_of is not None)
        for owner, weights in zip(earlier.owners, _weights(earlier), strict=True)
    ]
    copy_of: str | None = None
    related: dict[str, None] = {}
    for account, weights in zip(record.owners, _weights(record), strict=True):
        same = [(entry, owner.casefold() == account.casefold()) for entry, owner, one in known if _same(weights, one)]
        if same and not same[0][1]:
            copy_of = copy_of or same[0][0]
        related |= {entry: None for entry, is_same_account in same if is_same_account}
    return dataclasses.replace(record, copy_of=copy_of, related=tuple(related))


_Weights = tuple[str, Sequence[float], Sequence[float]]


def _weights(record: Record) -> list[_Weights]:
    """Returns the digest, the log-probabilities and the outcomes of each checkpoint."""
    return list(zip(record.tensors, record.prints, record.secret, strict=True))


def _same(one: _Weights, other: _Weights) -> bool:
    (digest, prints, outcomes), (digest_too, prints_too, outcomes_too) = one, other
    if digest == digest_too:
        return True
    if not prints or len(prints) != len(prints_too) or tuple(outcomes) != tuple(outcomes_too):
        return False
    return bool(np.abs(np.subtract(prints, prints_too)).max() <= _SAME_PRINT)
