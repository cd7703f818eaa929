"""Tokens: the caller of a request, and its rights on repositories."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.requests import Request

from local_hub.database import Database, now
from local_hub.errors import HubError
from local_hub.limits import check_repo_name

RIGHTS = ("none", "read", "write", "admin")
"""In order, each with those before it: read public repositories; read private ones; create and change; delete."""


@dataclass(frozen=True)
class Caller:
    """The sender of a request.

    Args:
        name: of the token's owner, `""` without a token.
        rights: one of `RIGHTS`, for repositories that `repos` does not name.
        repos: rights by repository: `"owner/name"` overrides `"owner/*"`.
    """

    name: str = ""
    rights: str = "none"
    repos: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        return bool(self.name)

    @property
    def role(self) -> str:
        """The highest right anywhere."""
        return max((self.rights, *self.repos.values()), key=RIGHTS.index)

    def may(self, right: str, namespace: str, name: str) -> bool:
        """Returns whether the token has a right on a repository, public or not."""
        by_name = {key.lower(): value for key, value in self.repos.items()}
        held = by_name.get(f"{namespace}/{name}".lower(), by_name.get(f"{namespace}/*".lower(), self.rights))
        return RIGHTS.index(held) >= RIGHTS.index(right)


def create_token(database: Database, name: str, rights: str, repos: Mapping[str, str] | None = None) -> str:
    """Creates a token and returns it; the server keeps only its hash.

    Args:
        database: of the server.
        name: of the owner, who is the author of commits and the default namespace.
        rights: see `Caller`.
        repos: see `Caller`.

    Raises:
        ValueError: a name or a right is not valid.
    """
    for right in (rights, *(repos or {}).values()):
        if right not in RIGHTS:
            raise ValueError(f"rights must be one of {', '.join(RIGHTS)}, got {right!r}; pick one.")
    try:
        check_repo_name(name, "x")
        for repo in repos or {}:
            namespace, slash, within = repo.partition("/")
            check_repo_name(namespace, "x" if within == "*" and slash else within)
    except HubError as error:
        raise ValueError(error.message) from None
    token = "hf_" + secrets.token_hex(20)
    with database.write() as writing:
        writing.execute(
            "INSERT INTO tokens VALUES (?, ?, ?, ?, ?)", (_hash(token), name, rights, json.dumps(repos or {}), now())
        )
    return token


def revoke_tokens(database: Database, name: str) -> int:
    """Revokes all tokens of an owner; returns their number."""
    with database.write() as writing:
        return writing.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount


def token_is_known(database: Database, token: str) -> bool:
    return database.one("SELECT 1 FROM tokens WHERE hash = ?", _hash(token)) is not None


def caller_of(database: Database, request: Request) -> Caller:
    """Returns the sender of a request.

    Raises:
        HubError: 401, the token is not one of this server.
    """
    header = request.headers.get("authorization")
    if header is None:
        return Caller()
    scheme, _, token = header.partition(" ")
    row = database.one("SELECT * FROM tokens WHERE hash = ?", _hash(token.strip()))
    if scheme.lower() != "bearer" or row is None:
        raise HubError(401, "Invalid credentials in Authorization header")
    return Caller(row["name"], row["rights"], json.loads(row["repos"]))


def _hash(token: str) -> str:
    # A token is 160 random bits: a slow hash would gain nothing.
    return hashlib.sha256(token.encode()).hexdigest()


class Signer:
    """Signs links that are valid for a limited time and for one use, so that an upload needs no token."""

    def __init__(self, database: Database) -> None:
        row = database.one("SELECT value FROM secrets WHERE name = 'links'")
        if row is None:
            with database.write() as writing:
                writing.execute("INSERT OR IGNORE INTO secrets VALUES ('links', ?)", (secrets.token_bytes(32),))
            row = database.one("SELECT value FROM secrets WHERE name = 'links'")
            assert row is not None
        self._key: bytes = row["value"]

    def sign(self, what: str, seconds: float) -> str:
        """Returns the query of a link for `what`."""
        expires = int(time.time() + seconds)
        return f"expires={expires}&signature={self._signature(what, expires)}"

    def check(self, what: str, request: Request) -> None:
        """Raises `HubError` 403 for a link that is not for `what` or has expired."""
        expires = request.query_params.get("expires", "")
        signature = request.query_params.get("signature", "")
        if not (expires.isascii() and expires.isdigit() and len(expires) < 16):
            raise HubError(403, "this link must have an expiry of this server, got none; request a new one.")
        if not hmac.compare_digest(signature.encode(), self._signature(what, int(expires)).encode()):
            raise HubError(403, "this link must have this server's signature, got another one; request a new one.")
        if time.time() > int(expires):
            raise HubError(403, "this link has expired; request a new one.")

    def _signature(self, what: str, expires: int) -> str:
        return hmac.new(self._key, f"{expires} {what}".encode(), hashlib.sha256).hexdigest()
