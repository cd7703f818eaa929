"""The commits of a repository: find a revision, read its files, add another commit."""

from __future__ import annotations

import functools
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from local_hub.calls import Hub, Repo
from local_hub.database import Database, as_date
from local_hub.errors import HubError, bad_request, no_revision
from local_hub.limits import check_path, check_twins
from local_hub.objects import git_commit, git_id, git_trees, tree_entries

MAIN = "refs/heads/main"

_LARGE = """
*.7z *.arrow *.avro *.bin *.bz2 *.ckpt *.gif *.gz *.h5 *.jpeg *.jpg *.joblib *.mp3 *.mp4 *.msgpack *.npy *.npz *.onnx
*.parquet *.pb *.pickle *.pkl *.png *.pt *.pth *.rar *.safetensors *.tar *.tgz *.wasm *.wav *.webp *.whl *.xz *.zip
*.zst *tfevents* saved_model/**/*
"""
GITATTRIBUTES = "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in _LARGE.split())
"""The first file of every repository: LFS stores these files, whatever their size."""


@dataclass(frozen=True)
class Blob:
    """A file of a commit.

    Args:
        oid: git's id, of the pointer for a file in LFS.
        sha256: of its content.
        size: of its content, bytes.
        pointer_size: bytes of the pointer, `None` for a file in git.
    """

    oid: str
    sha256: str
    size: int
    pointer_size: int | None = None

    @property
    def etag(self) -> str:
        return self.oid if self.pointer_size is None else self.sha256


@dataclass(frozen=True)
class Snapshot:
    """All files by path, and the id of every folder by path (`""` is the root), in git's order."""

    files: Mapping[str, Blob]
    folders: Mapping[str, str]


@dataclass(frozen=True)
class Commit:
    oid: str
    tree: str
    parent: str | None
    author: str
    date: str
    title: str
    message: str


@dataclass(frozen=True)
class Add:
    path: str
    blob: Blob


@dataclass(frozen=True)
class Delete:
    path: str
    is_folder: bool = False


@functools.lru_cache(maxsize=64)  # a folder's id is a hash of all within it, so no entry becomes stale
def snapshot(database: Database, tree: str) -> Snapshot:
    """Returns the files of a commit, given the id of its root folder."""
    oids: dict[str, str] = {}
    folders: dict[str, str] = {}

    def walk(oid: str, prefix: str) -> None:
        folders[prefix.rstrip("/")] = oid
        row = database.one("SELECT content FROM trees WHERE oid = ?", oid)
        assert row is not None, f"tree {oid} is missing"
        for name, inner, is_folder in tree_entries(row["content"]):
            if is_folder:
                walk(inner, f"{prefix}{name}/")
            else:
                oids[prefix + name] = inner

    walk(tree, "")
    blobs: dict[str, Blob] = {}
    wanted = sorted(set(oids.values()))
    for start in range(0, len(wanted), 500):
        some = wanted[start : start + 500]
        marks = ",".join("?" * len(some))
        for row in database.read(f"SELECT * FROM blobs WHERE oid IN ({marks})", *some):
            blobs[row["oid"]] = Blob(row["oid"], row["sha256"], row["size"], row["pointer_size"])
    return Snapshot({path: blobs[oid] for path, oid in oids.items()}, folders)


def head_of(database: Database, repo: Repo, ref: str) -> str | None:
    """Returns the commit of a ref, given by its full name."""
    row = database.one("SELECT oid FROM refs WHERE repo = ? AND name = ?", repo.key, ref)
    return None if row is None else row["oid"]


def full_ref(revision: str) -> str:
    """Returns the full name of a branch, or a full name as it is."""
    return revision if revision.startswith("refs/") else f"refs/heads/{revision}"


def find_commit(database: Database, repo: Repo, revision: str) -> Commit:
    """Returns the commit of a revision: a branch, a tag, a full ref, or the first 7 or more digits of its id.

    Raises:
        HubError: 404 `RevisionNotFound`.
    """
    for ref in (full_ref(revision), f"refs/tags/{revision}"):
        oid = head_of(database, repo, ref)
        if oid is not None:
            return commit_at(database, repo, oid)
    if re.fullmatch(r"[0-9a-f]{7,40}", revision):
        rows = database.read(
            "SELECT * FROM commits WHERE repo = ? AND oid >= ? AND oid < ? LIMIT 2", repo.key, revision, revision + "g"
        )
        if len(rows) == 1:
            return _as_commit(rows[0])
    raise no_revision(revision)


def commit_at(database: Database, repo: Repo, oid: str) -> Commit:
    """Returns the commit with a full id.

    Raises:
        HubError: 404 `RevisionNotFound`.
    """
    row = database.one("SELECT * FROM commits WHERE repo = ? AND oid = ?", repo.key, oid)
    if row is None:
        raise no_revision(oid)
    return _as_commit(row)


def _as_commit(row: sqlite3.Row) -> Commit:
    return Commit(*(row[name] for name in ("oid", "tree", "parent", "author", "date", "title", "message")))


def ancestry(database: Database, repo: Repo, commit: Commit) -> Iterator[Commit]:
    """Yields a commit and its ancestors, the newest first."""
    while True:
        yield commit
        if commit.parent is None:
            return
        commit = commit_at(database, repo, commit.parent)


# Changes. All of these need a transaction.


def changed(files: Mapping[str, Blob], operations: Sequence[Add | Delete]) -> dict[str, Blob]:
    """Returns the files after operations, in their order.

    Raises:
        HubError: 400, a path is refused; 404 `EntryNotFound`, a path to delete does not exist.
    """
    after = dict(files)
    for operation in operations:
        path = operation.path.rstrip("/")
        if isinstance(operation, Add):
            check_path(operation.path)
            after[operation.path] = operation.blob
            continue
        gone = [one for one in after if one.startswith(path + "/")] if operation.is_folder else [path]
        if not gone or any(one not in after for one in gone):
            kind = "folder" if operation.is_folder else "file"
            raise HubError(404, f"A {kind} with this name doesn't exist: {path[:200]!r}.", "EntryNotFound")
        for one in gone:
            del after[one]
    check_twins(after)
    return after


def write_commit(
    hub: Hub, repo: Repo, files: Mapping[str, Blob], parent: Commit | None, author: str, title: str, message: str
) -> Commit:
    """Stores a commit of these files. Moves no ref."""
    tree, trees = git_trees({path: blob.oid for path, blob in files.items()})
    seconds = int(time.time())
    text = f"{title}\n\n{message}" if message.strip() else title
    content = git_commit(tree, [parent.oid] if parent else [], author, seconds, text)
    made = Commit(
        git_id("commit", content), tree, parent.oid if parent else None, author, as_date(seconds), title, message
    )
    writing = hub.database.within()
    writing.executemany(
        "INSERT OR IGNORE INTO blobs VALUES (?, ?, ?, ?)",
        {(one.oid, one.sha256, one.size, one.pointer_size) for one in files.values()},
    )
    writing.executemany("INSERT OR IGNORE INTO trees VALUES (?, ?)", trees.items())
    writing.execute(
        "INSERT OR IGNORE INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (repo.key, made.oid, made.tree, made.parent, author, made.date, title, message, content),
    )
    return made


def move_ref(hub: Hub, repo: Repo, ref: str, oid: str) -> None:
    hub.database.within().execute("INSERT OR REPLACE INTO refs VALUES (?, ?, ?)", (repo.key, ref, oid))


def check_parent(head: str | None, parent: str | None) -> None:
    """Refuses a commit whose parent is not the head of the ref.

    Raises:
        HubError: 412, or 400 if `parent` is not an id.
    """
    if parent is None:
        return
    if not re.fullmatch(r"[0-9a-f]{5,40}", parent):
        raise bad_request(f"parentCommit must be the id of a commit, got {parent[:50]!r}; pass the full id.")
    if head is None or not head.startswith(parent):
        raise HubError(412, f"A commit has happened since {parent}; read its changes, then commit on top of it.")
