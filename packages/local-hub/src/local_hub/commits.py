"""Uploads: how to send each file, and the commit that makes them all visible at once.

Patterns of .gitignore and .gitattributes match in time bounded by their length times that of paths: as one regular
expression a pattern may backtrack without end. Here `fnmatch`, whose expressions do not backtrack, matches each part
between slashes, and the parts follow one after another.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response

from local_hub import discussions, history
from local_hub.calls import Call, Repo
from local_hub.cards import check_card
from local_hub.database import Database
from local_hub.errors import bad_request, no_revision
from local_hub.objects import SHA256, git_id, is_lfs_pointer, lfs_pointer
from local_hub.plain import parse_json

_MOST_WORK = 10**9  # about a second
_OVERHEAD = 64  # characters, of a pattern and of a path
_MOST_LINE = 65_536  # bytes of a line of a commit, besides the content of a file
_MOST_TEXTS = 64  # in a long line


def refuse_too_much(patterns: Iterable[str], paths: Iterable[str]) -> None:
    """Raises `HubError` 400 for more patterns and paths than match in about a second."""
    work = sum(len(one) + _OVERHEAD for one in patterns) * sum(len(one) + _OVERHEAD for one in paths)
    if work > _MOST_WORK:
        raise bad_request(
            f"patterns times paths must be at most {_MOST_WORK} characters, got {work}; send fewer files at a time."
        )


def matches(pattern: str, path: str) -> bool:
    """Returns whether a pattern of .gitignore, without its `!`, names a path or one of its folders."""
    parts = pattern.strip("/").split("/")
    if "/" not in pattern.rstrip("/"):
        parts = ["**", *parts]
    if parts[-1] == "**":
        parts.append("*")
    names = path.split("/")
    reached = {0}  # numbers of names that the parts so far can match
    for part in parts:
        if part == "**":
            reached = set(range(min(reached, default=len(names) + 1), len(names) + 1))
        else:
            form = _as_fnmatch(part)
            reached = {at + 1 for at in reached if at < len(names) and fnmatchcase(names[at], form)}
    return any(at < len(names) or not pattern.endswith("/") for at in reached)


def is_ignored(lines: Iterable[str], path: str) -> bool:
    """Returns whether the lines of a .gitignore leave a path out; the last match counts."""
    ignored = False
    for line in lines:
        pattern, takes_back = line.removeprefix("!"), line.startswith("!")
        if pattern.strip("/") and not line.startswith("#") and ignored == takes_back and matches(pattern, path):
            ignored = not takes_back
    return ignored


def _as_fnmatch(part: str) -> str:
    """Returns a part in the syntax of `fnmatch`, which negates by `!` only and has no backslash."""
    part = part.replace("[^", "[!")
    return re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], part)


_MOST_ATTRIBUTES = 65_536


def preupload(call: Call) -> Response:
    """`POST …/preupload/{revision}`: for each file, commit or LFS, and the id of its present content."""
    commit = history.find_commit(call.database, call.repo(), call.param("revision"))
    present = history.snapshot(call.database, commit.tree).files
    values = call.json()
    attributes = _attributes(call, present.get(".gitattributes"))
    ignored = _ignored(call, values, present.get(".gitignore"))
    files = values.get("files")
    if not isinstance(files, list):
        raise bad_request("files must be a list, got none; send one.")
    paths = [call.text(one, "path") if isinstance(one, dict) else "" for one in files]
    refuse_too_much([*(pattern for pattern, _ in attributes), *ignored], paths)
    return JSONResponse({"files": [_mode(call, one, present, attributes, ignored) for one in files]})


def _mode(
    call: Call, one: Any, present: Any, attributes: list[tuple[str, bool]], ignored: list[str]
) -> dict[str, Any]:
    if not isinstance(one, dict) or not isinstance(one.get("size"), int):
        raise bad_request("each file must have path, size and sample, got one without; send all three.")
    path = call.text(one, "path")
    try:
        sample = base64.b64decode(call.text(one, "sample", ""), validate=True)
    except binascii.Error:
        raise bad_request(f"a sample must be base64, got another text for {path[:200]!r}; encode it.") from None
    named = next((lfs for pattern, lfs in reversed(attributes) if matches(pattern, path)), False)
    large = named or one["size"] >= call.hub.limits.lfs_bytes or b"\0" in sample
    there: history.Blob | None = present.get(path)
    return {
        "path": path,
        "uploadMode": "lfs" if large and one["size"] > 0 else "regular",
        "shouldIgnore": is_ignored(ignored, path),
        # The client leaves out an unchanged file, by git's id or, for LFS, by SHA-256.
        "oid": None if there is None else there.etag,
    }


def _attributes(call: Call, blob: history.Blob | None) -> list[tuple[str, bool]]:
    """Returns the patterns of .gitattributes and whether each asks for LFS; the last match counts."""
    found = []
    for line in _small_text(call, blob).splitlines():
        pattern, *words = line.split()[:20] or ["#"]
        if not pattern.startswith(("#", "!")) and ("filter=lfs" in words or {"-filter", "!filter"} & set(words)):
            found.append((pattern, "filter=lfs" in words))
    return found


def _ignored(call: Call, values: dict[str, Any], blob: history.Blob | None) -> list[str]:
    """Returns the lines of the .gitignore in the request, or else in the repository."""
    text = call.text(values, "gitIgnore") if "gitIgnore" in values else _small_text(call, blob)
    return [line.rstrip() for line in text.splitlines()]


def _small_text(call: Call, blob: history.Blob | None) -> str:
    if blob is None or blob.size > _MOST_ATTRIBUTES:
        return ""
    return call.hub.objects.path(blob.sha256).read_text(encoding="utf-8", errors="replace")


def _demand_commit(call: Call, repo: Repo) -> None:
    """Demands the right to write, or to propose where the commit opens a pull request or adds to the caller's own."""
    num = discussions.number_of(call.param("revision"))
    if call.flag("create_pr") or (num is not None and discussions.is_author(call, repo, num)):
        call.demand_proposer()
    else:
        call.demand("write", repo.namespace, repo.name)


def admit_preupload(call: Call) -> int:
    """Admits a caller who may commit, for `preupload`."""
    _demand_commit(call, call.repo())
    return call.hub.limits.body_bytes


def admit(call: Call) -> int:
    """Admits a caller who may commit, for `commit`."""
    _demand_commit(call, call.repo())
    return call.hub.limits.commit_bytes


def commit(call: Call) -> Response:
    """`POST …/commit/{revision}`: all operations or none; contents first, then one transaction that moves the ref."""
    repo = call.repo()
    assert call.received is not None
    header, operations = _parse(call, repo, call.received.path)
    title = call.text(header, "summary", most=1000).strip() or "Upload"
    message = call.text(header, "description", "")
    parent = None if header.get("parentCommit") is None else call.text(header, "parentCommit")
    for operation in operations:
        if isinstance(operation, history.Add):
            check_card(call.hub, repo.kind, operation)

    revision, database = call.param("revision"), call.database
    ref, opens_pull = history.full_ref(revision), call.flag("create_pr")
    with database.write():
        if opens_pull:
            base = history.find_commit(database, repo, revision)
        else:
            _demand_writable(database, repo, revision, ref)
            base = history.commit_at(database, repo, history.head_of(database, repo, ref) or "")
        history.check_parent(base.oid, parent)
        before = history.snapshot(database, base.tree).files
        after = history.changed(before, operations)
        made = base
        if dict(before) != after or opens_pull:
            made = history.write_commit(call.hub, repo, after, base, call.caller.name, title, message)
        answer = {
            "success": True,
            "commitOid": made.oid,
            "commitUrl": f"{call.base}/{repo.url_path}/commit/{made.oid}",
        }
        if opens_pull:
            num = discussions.open_pull(call, repo, title, message, "open", base.oid)
            ref = discussions.ref_of(num)
            answer["pullRequestUrl"] = f"{call.base}/{repo.url_path}/discussions/{num}"
        if made is not base:
            history.move_ref(call.hub, repo, ref, made.oid)
            discussions.note_commit(call, repo, ref, made)
    return JSONResponse(answer)


def _demand_writable(database: Database, repo: Repo, revision: str, ref: str) -> None:
    """Refuses a ref that is neither a branch nor an open pull request."""
    if history.head_of(database, repo, ref) is None:
        history.find_commit(database, repo, revision)  # raises if there is no such revision
        raise bad_request(f"a commit must go to a branch, got {revision[:100]!r}; name a branch.")
    num = discussions.number_of(ref)
    if num is not None:
        discussions.demand_open(database, repo, num)
    elif not ref.startswith("refs/heads/"):
        raise no_revision(revision)


def _parse(call: Call, repo: Repo, body: Path) -> tuple[dict[str, Any], list[history.Add | history.Delete]]:
    """Returns the header and the operations of a commit, and stores its regular files."""
    header: dict[str, Any] | None = None
    operations: list[history.Add | history.Delete] = []
    for key, value in _lines(body, call.hub.limits.lfs_bytes):
        if key == "header":
            header = value
        elif key == "file":
            operations.append(_regular(call, value))
        elif key == "lfsFile":
            operations.append(_large(call, repo, value))
        elif key in ("deletedFile", "deletedFolder"):
            operations.append(history.Delete(call.text(value, "path"), key == "deletedFolder"))
        else:
            raise bad_request(f"a line of a commit must be of a known kind, got {key[:50]!r}; leave it out.")
        if len(operations) > call.hub.limits.commit_files:
            raise bad_request(f"a commit must have at most {call.hub.limits.commit_files} files, got more; split it.")
    if header is None:
        raise bad_request("a commit must begin with its header, got none; send one.")
    return header, operations


def _lines(body: Path, file_bytes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    most = _MOST_LINE + file_bytes * 4 // 3
    with body.open("rb") as file:
        while line := file.readline(most + 1):
            if not line.strip():
                continue
            # A long line holds the content of a file in base64, and all else in it is short.
            around = line.split(b'"', _MOST_TEXTS)
            is_file = b"\\" not in line and len(around) <= _MOST_TEXTS and len(b"".join(around[::2])) <= _MOST_LINE
            if len(line) > most or (len(line) > _MOST_LINE and not is_file):
                raise bad_request(
                    f"a line of a commit of more than {_MOST_LINE} bytes must hold one file in base64, got another; "
                    "send large files to LFS."
                )
            try:
                parsed = parse_json(line.decode())
            except ValueError:
                raise bad_request("each line of a commit must be JSON, got other text; send NDJSON.") from None
            key, value = (parsed.get("key"), parsed.get("value")) if isinstance(parsed, dict) else (None, None)
            if not isinstance(key, str) or not isinstance(value, dict):
                raise bad_request("each line of a commit must have key and value, got one without; send both.")
            yield key, value


def _regular(call: Call, value: dict[str, Any]) -> history.Add:
    path, content = call.text(value, "path"), value.get("content")
    if not isinstance(content, str) or value.get("encoding", "base64") not in ("base64", "utf-8"):
        raise bad_request(f"a file must have content in base64 or utf-8, got neither for {path[:200]!r}; send it so.")
    try:
        data = content.encode() if value.get("encoding") == "utf-8" else base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request(f"content must be base64, got another text for {path[:200]!r}; encode it.") from None
    if len(data) >= call.hub.limits.lfs_bytes:
        raise bad_request(
            f"files of {call.hub.limits.lfs_bytes} bytes or more go to LFS, got {path[:200]!r}; upload it there."
        )
    if is_lfs_pointer(data):
        raise bad_request(f"a file must be itself, got a pointer of LFS for {path[:200]!r}; upload its target.")
    return history.Add(path, history.Blob(git_id("blob", data), call.hub.objects.put(data), len(data)))


def _large(call: Call, repo: Repo, value: dict[str, Any]) -> history.Add:
    path, sha256 = call.text(value, "path"), call.text(value, "oid")
    row = call.database.one("SELECT size FROM lfs WHERE repo = ? AND sha256 = ?", repo.key, sha256)
    # To know a hash is not to have the file: only an upload to this repository counts.
    if not SHA256.fullmatch(sha256) or row is None or not call.hub.objects.has(sha256):
        raise bad_request(f"a large file must be uploaded before its commit, got none for {path[:200]!r}; upload it.")
    if value.get("size", row["size"]) != row["size"]:
        raise bad_request(
            f"size must be that of the upload, {row['size']}, got {str(value['size'])[:30]}; correct it."
        )
    pointer = lfs_pointer(sha256, row["size"])
    return history.Add(path, history.Blob(git_id("blob", pointer), sha256, row["size"], len(pointer)))
