"""All data but file contents: SQLite, one transaction for each change, durable when it returns."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from local_hub.hooks import Hooks

SYNCHRONOUS = "FULL"
"""SQLite waits for the disk in every transaction; tests, in which no machine loses power, do not."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS tokens (
    hash TEXT PRIMARY KEY, name TEXT NOT NULL, rights TEXT NOT NULL, repos TEXT NOT NULL, created TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS repos (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, namespace TEXT NOT NULL COLLATE NOCASE,
    name TEXT NOT NULL COLLATE NOCASE, private INTEGER NOT NULL, sdk TEXT, created TEXT NOT NULL,
    UNIQUE (kind, namespace, name)
);
CREATE TABLE IF NOT EXISTS blobs (
    oid TEXT PRIMARY KEY, sha256 TEXT NOT NULL, size INTEGER NOT NULL, pointer_size INTEGER
);
CREATE TABLE IF NOT EXISTS trees (oid TEXT PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS commits (
    repo INTEGER NOT NULL REFERENCES repos ON DELETE CASCADE, oid TEXT NOT NULL, tree TEXT NOT NULL, parent TEXT,
    author TEXT NOT NULL, date TEXT NOT NULL, title TEXT NOT NULL, message TEXT NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (repo, oid)
);
CREATE TABLE IF NOT EXISTS refs (
    repo INTEGER NOT NULL REFERENCES repos ON DELETE CASCADE, name TEXT NOT NULL, oid TEXT NOT NULL,
    PRIMARY KEY (repo, name)
);
CREATE TABLE IF NOT EXISTS lfs (
    repo INTEGER NOT NULL REFERENCES repos ON DELETE CASCADE, sha256 TEXT NOT NULL, size INTEGER NOT NULL,
    created REAL NOT NULL, PRIMARY KEY (repo, sha256)
);
CREATE TABLE IF NOT EXISTS discussions (
    repo INTEGER NOT NULL REFERENCES repos ON DELETE CASCADE, num INTEGER NOT NULL, title TEXT NOT NULL,
    author TEXT NOT NULL, created TEXT NOT NULL, status TEXT NOT NULL, base TEXT, merged TEXT,
    PRIMARY KEY (repo, num)
);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, repo INTEGER NOT NULL, num INTEGER NOT NULL, type TEXT NOT NULL, author TEXT NOT NULL,
    created TEXT NOT NULL, data TEXT NOT NULL,
    FOREIGN KEY (repo, num) REFERENCES discussions ON DELETE CASCADE
);
CREATE TABLE IF NOT EXISTS settings (
    repo INTEGER NOT NULL REFERENCES repos ON DELETE CASCADE, kind TEXT NOT NULL, key TEXT NOT NULL,
    value TEXT NOT NULL, description TEXT, updated TEXT NOT NULL, PRIMARY KEY (repo, kind, key)
);
"""


class Database:
    """The tables of a server. Threads share connections; one transaction writes at a time.

    Args:
        path: of the file.
        hooks: called around writes.
    """

    def __init__(self, path: Path, hooks: Hooks) -> None:
        self._path = path
        self._hooks = hooks
        self._writing = threading.Lock()
        self._within = threading.local()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        path.touch(mode=0o600)
        try:
            with self._connection() as connection:
                connection.executescript(_SCHEMA)
        except BaseException:
            self.close()
            raise

    def read(self, query: str, *values: Any) -> list[sqlite3.Row]:
        """Returns all rows of a query on committed data; within `write`, on its own data too."""
        with self._connection() as connection:
            return connection.execute(query, values).fetchall()

    def one(self, query: str, *values: Any) -> sqlite3.Row | None:
        """Returns the first row of a query, if any."""
        with self._connection() as connection:
            row: sqlite3.Row | None = connection.execute(query, values).fetchone()
            return row

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Opens a transaction. All of it is on disk when the context ends, and nothing of it if that raises."""
        with self._writing, self._connection() as connection:
            self._hooks.reach("transaction-begin")
            connection.execute("BEGIN IMMEDIATE")
            self._within.connection = connection
            try:
                yield connection
                self._hooks.reach("transaction-commit")
                connection.execute("COMMIT")
            finally:
                self._within.connection = None
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        self._hooks.reach("transaction-committed")

    def within(self) -> sqlite3.Connection:
        """Returns the connection of this thread's transaction, for functions that add to it."""
        connection: sqlite3.Connection | None = getattr(self._within, "connection", None)
        assert connection is not None, "call it within write()"
        return connection

    def close(self) -> None:
        """Closes all connections, those in use after their use."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection of this thread's transaction, or else a shared one."""
        within: sqlite3.Connection | None = getattr(self._within, "connection", None)
        if within is not None:
            yield within
            return
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield connection
        finally:
            self._idle.append(connection)
            if self._closed:
                self.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=60, isolation_level=None, check_same_thread=False)
        weakref.finalize(self, connection.close)
        connection.row_factory = sqlite3.Row
        try:
            for setting in ("journal_mode = WAL", f"synchronous = {SYNCHRONOUS}", "foreign_keys = ON"):
                connection.execute(f"PRAGMA {setting}")
        except BaseException:
            connection.close()
            raise
        return connection


def now() -> str:
    """Returns the time in the Hub's format."""
    return as_date(datetime.now(UTC).timestamp())


def as_date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
