"""Discussions and pull requests: open, comment, close, merge."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from local_hub.calls import Call, Repo
from local_hub.database import Database, now
from local_hub.errors import HubError, bad_request
from local_hub.history import MAIN, Blob, Commit, commit_at, head_of, move_ref, snapshot, write_commit
from local_hub.limits import check_twins

_PAGE = 50


def ref_of(num: int) -> str:
    return f"refs/pr/{num}"


def number_of(ref: str) -> int | None:
    """Returns the number of the pull request with this ref."""
    match = re.fullmatch(r"refs/pr/(\d{1,9})", ref, re.ASCII)
    return int(match[1]) if match else None


def _row(database: Database, repo: Repo, num: int) -> Any:
    row = database.one("SELECT * FROM discussions WHERE repo = ? AND num = ?", repo.key, num)
    if row is None:
        raise HubError(404, f"there is no discussion {num} here; list them.")
    return row


def is_author(call: Call, repo: Repo, num: int) -> bool:
    return call.caller.known and bool(_row(call.database, repo, num)["author"] == call.caller.name)


def demand_open(database: Database, repo: Repo, num: int) -> None:
    """Raises `HubError` 403 for a pull request that is closed or merged."""
    status = _row(database, repo, num)["status"]
    if status not in ("draft", "open"):
        raise HubError(403, f"a pull request must be open for this, got one that is {status}; open another one.")


# Writing. The first two need a transaction.


def open_pull(call: Call, repo: Repo, title: str, description: str, status: str, base: str | None) -> int:
    """Opens a pull request on the commit `base`, or a discussion if `None`; returns its number."""
    row = call.database.one("SELECT MAX(num) AS most FROM discussions WHERE repo = ?", repo.key)
    num = (row["most"] or 0 if row else 0) + 1
    call.database.within().execute(
        "INSERT INTO discussions VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
        (repo.key, num, title, call.caller.name, now(), status, base),
    )
    _note(call, repo, num, "comment", _comment(description))
    return num


def note_commit(call: Call, repo: Repo, ref: str, commit: Commit) -> None:
    """Adds a commit to the events of the pull request with this ref, if there is one."""
    num = number_of(ref)
    if num is not None:
        _note(call, repo, num, "commit", {"subject": commit.title, "oid": commit.oid})


def _comment(text: str) -> dict[str, Any]:
    return {"edited": False, "hidden": False, "latest": {"raw": text}, "history": [{"raw": text}]}


def _note(call: Call, repo: Repo, num: int, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    made = now()
    cursor = call.database.within().execute(
        "INSERT INTO events (repo, num, type, author, created, data) VALUES (?, ?, ?, ?, ?, ?)",
        (repo.key, num, kind, call.caller.name, made, json.dumps(data)),
    )
    return _event(cursor.lastrowid or 0, kind, call.caller.name, made, dict(data))


def _event(number: int, kind: str, author: str, created: str, data: dict[str, Any]) -> dict[str, Any]:
    who = {"name": author, "type": "user"}
    if kind == "comment":
        data["latest"]["author"] = who
    return {"id": f"{number:024x}", "type": kind, "author": who, "createdAt": created, "data": data}


def _number(call: Call) -> int:
    text = call.param("num")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HubError(404, f"a discussion has a number, got {text[:30]!r}; list them.")
    return int(text)


def create(call: Call) -> Response:
    """`POST …/discussions`."""
    repo, values = call.repo(), call.json()
    title, text = call.text(values, "title", most=200).strip(), call.text(values, "description", "")
    if len(title) < 3:
        raise bad_request(f"a title must have at least 3 characters, got {title!r}; lengthen it.")
    is_pull = bool(values.get("pullRequest"))
    with call.database.write():
        base = head_of(call.database, repo, MAIN) if is_pull else None
        num = open_pull(call, repo, title, text, "draft" if is_pull else "open", base)
        if base is not None:
            move_ref(call.hub, repo, ref_of(num), base)
    return JSONResponse({"num": num, "url": f"{call.base}/{repo.url_path}/discussions/{num}", "pullRequest": is_pull})


def comment(call: Call) -> Response:
    """`POST …/discussions/{num}/comment`."""
    repo, num = call.repo(), _number(call)
    text = call.text(call.json(), "comment")
    if not text.strip():
        raise bad_request("a comment must have text, got none; write some.")
    with call.database.write():
        _row(call.database, repo, num)
        event = _note(call, repo, num, "comment", _comment(text))
    return JSONResponse({"newMessage": event})


def set_status(call: Call) -> Response:
    """`POST …/discussions/{num}/status`: its author, or who may write, reopens or closes, with an optional reason."""
    repo, num = call.repo(), _number(call)
    if not is_author(call, repo, num):
        call.demand("write", repo.namespace, repo.name)
    values = call.json()
    status, text = call.text(values, "status"), call.text(values, "comment", "")
    if status not in ("open", "closed"):
        raise bad_request(f"status must be open or closed, got {status[:30]!r}; pick one.")
    with call.database.write() as writing:
        if _row(call.database, repo, num)["status"] == "merged":
            raise HubError(403, "a merged pull request stays merged; revert it by another commit.")
        if text.strip():
            _note(call, repo, num, "comment", _comment(text))
        writing.execute("UPDATE discussions SET status = ? WHERE repo = ? AND num = ?", (status, repo.key, num))
        event = _note(call, repo, num, "status-change", {"status": status})
    return JSONResponse({"newStatus": event})


def merge(call: Call) -> Response:
    """`POST …/discussions/{num}/merge`: one commit on main with the changes of the pull request."""
    repo, num = call.repo("write"), _number(call)
    text = call.text(call.json(), "comment", "")
    database = call.database
    with database.write() as writing:
        row = _row(database, repo, num)
        if row["base"] is None:
            raise bad_request("only a pull request can be merged, got a discussion; close it instead.")
        demand_open(database, repo, num)
        head = commit_at(database, repo, head_of(database, repo, MAIN) or "")
        conflicts, after = _merged(call, repo, row, head)
        if conflicts:
            raise HubError(409, f"main has changed the same files: {', '.join(conflicts)[:500]}; propose it anew.")
        check_twins(after)
        if text.strip():
            _note(call, repo, num, "comment", _comment(text))
        message = f"{row['title']} (#{num})"
        made = write_commit(call.hub, repo, after, head, row["author"], message, "")
        move_ref(call.hub, repo, MAIN, made.oid)
        writing.execute(
            "UPDATE discussions SET status = 'merged', merged = ? WHERE repo = ? AND num = ?",
            (made.oid, repo.key, num),
        )
        event = _note(call, repo, num, "status-change", {"status": "merged"})
    return JSONResponse({"newStatus": event, "mergeCommitId": made.oid})


def _merged(call: Call, repo: Repo, row: Any, onto: Commit) -> tuple[list[str], dict[str, Blob]]:
    """Returns the files that both sides changed differently, and all files after the merge."""
    proposed = head_of(call.database, repo, ref_of(row["num"]))
    base, proposal = (commit_at(call.database, repo, oid or row["base"]) for oid in (row["base"], proposed))
    before, after, here = (snapshot(call.database, one.tree).files for one in (base, proposal, onto))
    result, conflicts = dict(here), []
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        if here.get(path) not in (before.get(path), after.get(path)):
            conflicts.append(path)
        elif path in after:
            result[path] = after[path]
        else:
            result.pop(path, None)
    return conflicts, result


# Reading


def list_all(call: Call) -> Response:
    """`GET …/discussions`, the newest first."""
    repo = call.repo()
    rows = call.database.read("SELECT * FROM discussions WHERE repo = ? ORDER BY num DESC", repo.key)
    kind, status, author = call.query("type", "all"), call.query("status", "all"), call.query("author")
    kept = [
        row
        for row in rows
        if (kind == "all" or (kind == "pull_request") == (row["base"] is not None))
        and (status == "all" or (row["status"] in ("draft", "open")) == (status == "open"))
        and author in ("", row["author"])
    ]
    start = call.number("p", 0, 10**6) * _PAGE
    shown = [_summary(repo, row) for row in kept[start : start + _PAGE]]
    return JSONResponse({"discussions": shown, "count": len(kept), "start": start})


def _summary(repo: Repo, row: Any) -> dict[str, Any]:
    return {
        "num": row["num"],
        "title": row["title"],
        "author": {"name": row["author"], "type": "user"},
        "createdAt": row["created"],
        "status": row["status"],
        "repo": {"name": repo.id, "type": repo.kind},
        "isPullRequest": row["base"] is not None,
    }


def details(call: Call) -> Response:
    """`GET …/discussions/{num}`; a pull request has no diff: its revision `refs/pr/{num}` has its files."""
    repo, num = call.repo(), _number(call)
    row = _row(call.database, repo, num)
    events = call.database.read("SELECT * FROM events WHERE repo = ? AND num = ? ORDER BY id", repo.key, num)
    answer = _summary(repo, row) | {
        "events": [
            _event(one["id"], one["type"], one["author"], one["created"], json.loads(one["data"])) for one in events
        ]
    }
    if row["base"] is not None:
        answer["changes"] = {"base": MAIN, "mergeCommitId": row["merged"]}
        head = commit_at(call.database, repo, head_of(call.database, repo, MAIN) or "")
        answer["filesWithConflicts"] = _merged(call, repo, row, head)[0] if row["status"] in ("draft", "open") else []
    return JSONResponse(answer)
