"""The signed record of an entry's verification."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hf_credit.boundary import read
from hf_credit.safe_io import parse_json
from hf_credit_leaderboard.inputs import mapping, to_json
from hf_credit_leaderboard.seasons import Season, SeasonSecret, signed_by

SELF_REPORTED, REPLAYED, VERIFIED = "self-reported", "replayed", "verified"
BADGES = (SELF_REPORTED, REPLAYED, VERIFIED)
"""Cumulative checks: form and seeds; a replay of all replies; a second play of the checkpoints."""

LONGEST_TEMPLATE = 2**16  # characters, since a maintainer has to read it
PRINT_WIDTH = 16
"""The numbers of a policy's print for each task."""

_SAME_PRINT = 0.01
"""The sine of the angle between the prints of two policies on a task. Of a micro policy's copy in eight bits it is
0.008, and of training runs with separate seeds 0.25 and more; what is trained from the same base lies between."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The verification result of one entry.

    Attributes:
        entry: the id of the entry.
        season, board: the names of the season and the board.
        badge: the highest badge that the entry earned, one of `BADGES`.
        notes: caveats for readers, one sentence each.
        submitter: the account that opened the pull request; "" if unknown.
        copy_of: the id of an earlier entry with the same weights, which is ranked in place of this one.
        related: the ids of earlier entries with the same weights in a repository of the same account, whose rank this
            one takes unless `copy_of` is set.
        public: the `claimed` and `found` means on the public tasks, and the `p` of the paired test between them.
        secret: the outcomes on the secret tasks, [checkpoints][tasks], tasks in their order. Empty with
            `unknown_templates`: a template reads every prompt, and could tell a bit of it by each outcome.
        tokens: the mean number of tokens per episode on the secret tasks; unknown where `secret` is empty.
        owners: the account whose repository holds each checkpoint.
        tensors, templates: the digests of the weights and the chat template of each checkpoint.
        unknown_templates: the templates that the season does not know, as text by digest.
        prints: what each checkpoint computes on secret tasks, without a trace of them
            (`hf_credit_leaderboard.playing`): `PRINT_WIDTH` numbers for each.
        parameters: the number of parameters of the largest checkpoint.
        isolation: the restrictions on the process that played.
        versions: the package versions of the verifier.
    """

    entry: str
    season: str
    board: str
    badge: str
    notes: tuple[str, ...] = ()
    submitter: str = ""
    copy_of: str | None = None
    related: tuple[str, ...] = ()
    public: Mapping[str, float] = field(default_factory=dict)
    secret: tuple[tuple[float, ...], ...] = ()
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
        return bool(self.secret) and self.copy_of is None and set(self.templates) <= set(season.templates)

    def awaits(self, season: Season) -> bool:
        """Returns whether the entry has templates that the season did not know, and knows now while it is open."""
        known = set(self.templates) <= set(season.templates)
        return self.badge == VERIFIED and not self.secret and known and season.open

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
    """Returns the record with links to listed entries that have the same weights: equal tensors, or prints that agree
    up to a factor on most tasks, whatever was sampled from them.

    Of entries with the same weights one is ranked. Only an account can publish under its name, so weights that an
    earlier entry has from a repository of another account make the new entry a copy (`copy_of`). Among those of one
    account (`related`) the newest is ranked if its submitter is this account or that of the earlier entries, and the
    earliest otherwise, since anybody may enter weights of others, at settings that play badly.
    """
    # Copies come last, so that no copy makes its original a copy.
    known = [
        (earlier, owner.casefold(), weights)
        for earlier in sorted(listed, key=lambda one: one.copy_of is not None)
        for owner, weights in zip(earlier.owners, _weights(earlier), strict=True)
    ]
    copy_of: str | None = None
    related: list[tuple[Record, str]] = []
    for owner, weights in zip(record.owners, _weights(record), strict=True):
        same = [(earlier, its) for earlier, its, one in known if same_weights(weights, one)]
        if same and same[0][1] != owner.casefold():
            copy_of = copy_of or same[0][0].entry
        related += [(earlier, its) for earlier, its in same if its == owner.casefold()]
    who = record.submitter.casefold()
    for earlier, its in related:
        if who and who not in {its, earlier.submitter.casefold()}:
            copy_of = copy_of or earlier.entry
    return dataclasses.replace(record, copy_of=copy_of, related=tuple(dict.fromkeys(one.entry for one, _ in related)))


def _weights(record: Record) -> list[tuple[str, Sequence[float]]]:
    """Returns the digest and the print of each checkpoint."""
    return list(zip(record.tensors, record.prints, strict=True))


def same_weights(one: tuple[str, Sequence[float]], other: tuple[str, Sequence[float]]) -> bool:
    """Returns whether two checkpoints, each its digest and its print, have equal tensors or prints that agree."""
    (digest, print_), (digest_too, print_too) = one, other
    if digest == digest_too:
        return True
    if not print_ or len(print_) != len(print_too):
        return False
    a, b = (np.reshape(numbers, (-1, PRINT_WIDTH)) for numbers in (print_, print_too))
    sizes = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = (a * b).sum(axis=1)[sizes > 0] / sizes[sizes > 0]
    return bool(len(cosines) and np.median(cosines) >= math.sqrt(1 - _SAME_PRINT**2))
