"""Maintains a server's folder: removes leftovers, and checks all content."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from local_hub.calls import Hub
from local_hub.objects import git_id, lfs_pointer, sha256_of, tree_entries

logger = logging.getLogger(__name__)


def sweep(hub: Hub) -> int:
    """Removes what is older than `garbage_seconds` and unfinished, or no commit refers to; returns how many objects.

    A current upload is younger. If a folder cannot be read, nothing is removed: its files would look like garbage.
    """
    oldest = time.time() - hub.limits.garbage_seconds
    hub.objects.empty_temporary(oldest)
    with hub.database.write() as writing:
        trees, blobs, broken = _reachable(hub)
        if broken:
            logger.warning("nothing was removed, since %d folders cannot be read; run local-hub check.", len(broken))
            return 0
        writing.execute("DELETE FROM lfs WHERE created < ? AND sha256 NOT IN (SELECT sha256 FROM blobs)", (oldest,))
        for table, used in (("trees", trees), ("blobs", blobs)):
            gone = [(row["oid"],) for row in hub.database.read(f"SELECT oid FROM {table}") if row["oid"] not in used]
            writing.executemany(f"DELETE FROM {table} WHERE oid = ?", gone)
        used_objects = {row["sha256"] for row in hub.database.read("SELECT sha256 FROM blobs")}
        # Within the transaction, so that no new commit refers to an object during its removal.
        return hub.objects.sweep(used_objects, hub.limits.garbage_seconds)


def _reachable(hub: Hub) -> tuple[set[str], set[str], set[str]]:
    """Returns the folders and files of all commits, and those folders that are missing or have changed."""
    trees: set[str] = set()
    blobs: set[str] = set()
    broken: set[str] = set()
    waiting = {row["tree"] for row in hub.database.read("SELECT DISTINCT tree FROM commits")}
    while waiting:
        tree = waiting.pop()
        trees.add(tree)
        row = hub.database.one("SELECT content FROM trees WHERE oid = ?", tree)
        if row is None or git_id("tree", row["content"]) != tree:
            broken.add(tree)
            continue
        for _, oid, is_folder in tree_entries(row["content"]):
            if not is_folder:
                blobs.add(oid)
            elif oid not in trees:
                waiting.add(oid)
    return trees, blobs, broken


def check(hub: Hub) -> Iterator[str]:
    """Reads all content, and yields a sentence for each missing or changed part."""
    for row in hub.database.read("SELECT repo, oid, tree, parent, content FROM commits"):
        if git_id("commit", row["content"]) != row["oid"]:
            yield f"the content of commit {row['oid']} does not match its id."
        parent = hub.database.one("SELECT 1 FROM commits WHERE repo = ? AND oid = ?", row["repo"], row["parent"])
        if row["parent"] is not None and parent is None:
            yield f"commit {row['oid']} follows {row['parent']}, which is missing."
    for row in hub.database.read("SELECT * FROM refs"):
        if hub.database.one("SELECT 1 FROM commits WHERE repo = ? AND oid = ?", row["repo"], row["oid"]) is None:
            yield f"{row['name']} of repository {row['repo']} is at {row['oid']}, which is missing."
    _, blobs, broken = _reachable(hub)
    for oid in sorted(broken):
        yield f"folder {oid} is missing, or its content does not match its id."
    for path in hub.objects.all():
        if sha256_of(path) != path.name:
            yield f"the content of object {path.name} does not match its name."
    for oid in sorted(blobs):
        blob = hub.database.one("SELECT * FROM blobs WHERE oid = ?", oid)
        if blob is None:
            yield f"file {oid} is missing from the table of files."
            continue
        path, sha256, size = hub.objects.path(blob["sha256"]), blob["sha256"], blob["size"]
        if not path.is_file():
            yield f"object {sha256} is missing."
        elif path.stat().st_size != size:
            yield f"object {sha256} has {path.stat().st_size} bytes, not {size}."
        elif blob["pointer_size"] is None and git_id("blob", path.read_bytes()) != oid:
            yield f"the content of file {oid} does not match its id."
        elif blob["pointer_size"] is not None and git_id("blob", lfs_pointer(sha256, size)) != oid:
            yield f"the pointer {oid} does not match object {sha256}."
