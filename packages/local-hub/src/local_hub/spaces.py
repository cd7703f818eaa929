"""The settings of a Space: variables, which clients can read, and secrets, which they cannot."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import JSONResponse, Response

from local_hub.calls import Call, Repo
from local_hub.database import Database, now
from local_hub.errors import HubError, bad_request, no_repo

# This Hub only stores Spaces.
RUNTIME = {"stage": "STOPPED", "hardware": {"current": None, "requested": None}, "gcTimeout": None}

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)


def _space(call: Call, right: str) -> Repo:
    if call.kind != "space":
        raise no_repo()
    return call.repo(right)


def _setting(call: Call) -> str:
    """Returns `variables` or `secrets`, the last part of the path."""
    return call.request.url.path.rpartition("/")[2]


def get_settings(call: Call) -> Response:
    """`GET …/variables|secrets`."""
    repo = _space(call, "write")
    return JSONResponse(_shown(call.database, repo, _setting(call)))


def set_setting(call: Call) -> Response:
    """`POST …/variables|secrets`."""
    repo, setting = _space(call, "write"), _setting(call)
    with call.database.write():
        store(call, repo, setting, call.json())
    return JSONResponse(_shown(call.database, repo, setting))


def delete_setting(call: Call) -> Response:
    """`DELETE …/variables|secrets`."""
    repo, setting = _space(call, "write"), _setting(call)
    key = call.text(call.json(), "key")
    with call.database.write() as writing:
        query = "DELETE FROM settings WHERE repo = ? AND kind = ? AND key = ?"
        if writing.execute(query, (repo.key, setting, key)).rowcount == 0:
            raise HubError(404, f"there is no {setting[:-1]} {key[:100]!r} here; list them.")
    return JSONResponse(_shown(call.database, repo, setting))


def store(call: Call, repo: Repo, setting: str, one: Any) -> None:
    """Stores a variable or a secret, within a transaction."""
    if not isinstance(one, dict) or not _KEY.fullmatch(call.text(one, "key")):
        raise bad_request("key must be the name of an environment variable, got another value; rename it.")
    description = call.text(one, "description") if one.get("description") is not None else None
    call.database.within().execute(
        "INSERT OR REPLACE INTO settings VALUES (?, ?, ?, ?, ?, ?)",
        (repo.key, setting, one["key"], call.text(one, "value"), description, now()),
    )


def _shown(database: Database, repo: Repo, setting: str) -> dict[str, dict[str, Any]]:
    rows = database.read("SELECT * FROM settings WHERE repo = ? AND kind = ? ORDER BY key", repo.key, setting)
    shown = {}
    for row in rows:
        shown[row["key"]] = {"key": row["key"], "description": row["description"], "updatedAt": row["updated"]}
        if setting == "variables":
            shown[row["key"]]["value"] = row["value"]
    return shown


def runtime(call: Call) -> Response:
    """`GET …/runtime`."""
    _space(call, "read")
    return JSONResponse(RUNTIME)
