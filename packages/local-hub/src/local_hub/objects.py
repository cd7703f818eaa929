"""File contents on disk by SHA-256, and git's ids of files, folders and commits."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.concurrency import run_in_threadpool

from local_hub.hooks import Hooks

SHA256 = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = re.compile(r"[0-9a-f]{32}")
_BUFFER = 2**20


@dataclass(frozen=True)
class Received:
    """A received body in a temporary file."""

    path: Path
    sha256: str
    size: int


class Objects:
    """The contents of one server, each once, named by its SHA-256 and stored whole or not at all.

    Args:
        folder: holds them.
        hooks: called around writes.
    """

    def __init__(self, folder: Path, hooks: Hooks) -> None:
        self._objects = folder / "objects"
        self.temporary = folder / "tmp"
        self._hooks = hooks
        for one in (self._objects, self.temporary):
            one.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        if not SHA256.fullmatch(sha256):
            raise ValueError(f"an object's name must be a SHA-256, got {sha256[:80]!r}; pass 64 hexadecimal digits.")
        return self._objects / sha256[:2] / sha256

    def has(self, sha256: str) -> bool:
        """Returns whether an object exists, and renews it, so that a sweep leaves it to whoever will refer to it."""
        try:
            os.utime(self.path(sha256))
        except FileNotFoundError:
            return False
        return True

    def put(self, content: bytes) -> str:
        """Stores bytes and returns their SHA-256."""
        sha256 = hashlib.sha256(content).hexdigest()
        if not self.has(sha256):
            with self._temporary() as path:
                path.write_bytes(content)
                self._move(path, sha256)
        return sha256

    async def receive(self, chunks: AsyncIterator[bytes]) -> Received:
        """Writes a body to a temporary file, which the caller discards in the end, also after `keep`."""
        digest, size, waiting = hashlib.sha256(), 0, bytearray()
        with self._temporary() as path, path.open("wb") as file:

            def write(content: bytes) -> None:
                digest.update(content)
                file.write(content)

            async for chunk in chunks:
                size += len(chunk)
                waiting += chunk
                if len(waiting) >= _BUFFER:
                    await run_in_threadpool(write, bytes(waiting))
                    waiting.clear()
            await run_in_threadpool(write, bytes(waiting))
        return Received(path, digest.hexdigest(), size)

    def keep(self, received: Received) -> None:
        """Makes a received body an object."""
        if not self.has(received.sha256):
            self._move(received.path, received.sha256)

    def discard(self, received: Received) -> None:
        """Removes a received body, unless it was kept."""
        received.path.unlink(missing_ok=True)

    def empty_temporary(self, oldest: float = math.inf) -> None:
        """Removes temporary files from before a time, in seconds since 1970, and nothing else in their folder."""
        for path in self.temporary.iterdir():
            with suppress(FileNotFoundError):
                if _TEMPORARY.fullmatch(path.name) and path.stat().st_mtime < oldest:
                    path.unlink()

    def all(self) -> Iterator[Path]:
        """Yields the path of every object."""
        for folder in sorted(self._objects.iterdir()):
            yield from sorted(folder.iterdir())

    def sweep(self, used: set[str], garbage_seconds: float) -> int:
        """Removes objects that are not `used` and older than `garbage_seconds`; returns their number."""
        removed, oldest = 0, time.time() - garbage_seconds
        for path in self.all():
            if SHA256.fullmatch(path.name) and path.name not in used and path.stat().st_mtime < oldest:
                path.unlink()
                removed += 1
        return removed

    @contextmanager
    def _temporary(self) -> Iterator[Path]:
        """Yields the path of a new temporary file, and removes it if the context raises."""
        path = self.temporary / secrets.token_hex(16)
        self._hooks.reach("object-write")
        try:
            yield path
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _move(self, path: Path, sha256: str) -> None:
        target = self.path(sha256)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        self._hooks.reach("object-rename")
        if not target.parent.exists():
            target.parent.mkdir(exist_ok=True)
            _sync_folder(self._objects)
        path.replace(target)
        _sync_folder(target.parent)
        self._hooks.reach("object-renamed")


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner can read, whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_disk_full(error: BaseException) -> bool:
    """Returns whether the system or SQLite had no space to write."""
    return (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)) or (
        "database or disk is full" in str(error)
    )


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Git


def git_id(kind: str, content: bytes) -> str:
    """Returns git's id of an object: the SHA-1 of `"<kind> <size>\\0"` and its content.

    Args:
        kind: `"blob"`, `"tree"` or `"commit"`.
        content: as git stores it.
    """
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(content)) + content, usedforsecurity=False).hexdigest()


def lfs_pointer(sha256: str, size: int) -> bytes:
    """Returns the content that git holds in place of a large file (version 1 of git-lfs's pointers)."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def is_lfs_pointer(content: bytes) -> bool:
    return content.startswith(b"version https://git-lfs.github.com/spec/")


def git_trees(files: Mapping[str, str]) -> tuple[str, dict[str, bytes]]:
    """Returns the id of a commit's root folder, and the content of every folder by id, as git stores them.

    Args:
        files: blob ids by path.
    """
    root: dict[str, object] = {}
    for path, oid in files.items():
        *folders, name = path.split("/")
        folder = root
        for one in folders:
            folder = folder.setdefault(one, {})  # type: ignore[assignment]
        folder[name] = oid
    trees: dict[str, bytes] = {}

    def write(folder: dict[str, object]) -> str:
        entries = []
        for name, inner in folder.items():
            if isinstance(inner, dict):
                entries.append((f"{name}/".encode(), b"40000", name, write(inner)))
            else:
                entries.append((name.encode(), b"100644", name, str(inner)))
        # Git sorts a folder's name as if it ended in a slash.
        content = b"".join(
            b"%s %s\0%s" % (mode, name.encode(), bytes.fromhex(oid)) for _, mode, name, oid in sorted(entries)
        )
        oid = git_id("tree", content)
        trees[oid] = content
        return oid

    return write(root), trees


def tree_entries(content: bytes) -> Iterator[tuple[str, str, bool]]:
    """Yields (name, id, whether it is a folder) of each entry of a folder as git stores it."""
    at = 0
    while at < len(content):
        space, end = content.index(b" ", at), content.index(b"\0", at)
        yield content[space + 1 : end].decode(), content[end + 1 : end + 21].hex(), content[at:space] == b"40000"
        at = end + 21


def git_commit(tree: str, parents: Iterable[str], author: str, seconds: int, message: str) -> bytes:
    """Returns a commit as git stores it.

    Args:
        tree: the root folder's id.
        parents: commit ids.
        author: and committer.
        seconds: since 1970, UTC.
        message: a line, and optionally an empty line and more text.
    """
    # < > and line ends would make another header.
    name = re.sub(r"[<>\n\0]", "", author).strip() or "unknown"
    who = f"{name} <{name}@users.noreply.invalid> {seconds} +0000"
    head = [f"tree {tree}", *(f"parent {one}" for one in parents), f"author {who}", f"committer {who}"]
    return ("\n".join(head) + "\n\n" + message.replace("\0", "").rstrip("\n") + "\n").encode()
