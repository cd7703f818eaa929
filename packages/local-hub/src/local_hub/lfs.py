"""Large files: uploads before their commit, by signed links that expire."""

from __future__ import annotations

import time
from typing import Any

from starlette.responses import JSONResponse, Response

from local_hub.calls import Call, Repo
from local_hub.errors import HubError, bad_request
from local_hub.objects import SHA256


def batch(call: Call) -> Response:
    """`POST {repo}.git/info/lfs/objects/batch`: the link to upload each object."""
    repo, values = call.repo(), call.json()
    if values.get("operation") != "upload":
        raise bad_request("operation must be upload, got another; download files by their paths.")
    objects = values.get("objects")
    if not isinstance(objects, list) or len(objects) > 1000:
        raise bad_request("objects must be a list of at most 1000, got another value; split it.")
    answers = [_object(call, repo, one) for one in objects]
    return JSONResponse({"transfer": "basic", "hash_algo": "sha256", "objects": answers})


def _object(call: Call, repo: Repo, one: Any) -> dict[str, Any]:
    if not isinstance(one, dict) or not isinstance(one.get("oid"), str) or not SHA256.fullmatch(one["oid"]):
        raise bad_request("each object must have oid, a SHA-256, and size, got another value; send both.")
    if type(one.get("size")) is not int or one["size"] < 0:
        raise bad_request(f"size must be a number of bytes, got {str(one.get('size'))[:30]!r}; correct it.")
    sha256, size = one["oid"], one["size"]
    answer: dict[str, Any] = {"oid": sha256, "size": size}
    # Others may not learn that another repository has it.
    row = call.database.one("SELECT 1 FROM lfs WHERE repo = ? AND sha256 = ?", repo.key, sha256)
    if row is not None and call.hub.objects.has(sha256):
        with call.database.write() as writing:  # a sweep leaves it to the commit that follows
            values = time.time(), repo.key, sha256
            writing.execute("UPDATE lfs SET created = ? WHERE repo = ? AND sha256 = ?", values)
        return answer
    if size > (most := call.hub.limits.file_bytes):
        message = f"a file must have at most {most} bytes, got {size}; split it."
        return {**answer, "error": {"code": 422, "message": message}}
    path = f"/lfs/{repo.key}/{sha256}/{size}"
    link = f"{call.base}{path}?{call.hub.signer.sign(f'PUT {path}', call.hub.limits.link_seconds)}"
    return {**answer, "actions": {"upload": {"href": link}}}


def _signed(call: Call) -> tuple[int, str, int]:
    """Returns the repository, SHA-256 and size of a signed link."""
    call.hub.signer.check(f"PUT {call.request.url.path}", call.request)
    key, sha256, size = (call.param(name) for name in ("repo", "sha256", "size"))
    if call.database.one("SELECT 1 FROM repos WHERE id = ?", int(key)) is None:
        raise HubError(404, "the repository of this upload is gone; request a new link.", "RepoNotFound")
    return int(key), sha256, int(size)


def admit(call: Call) -> int:
    """Admits a caller with a signed link, for `put`."""
    return _signed(call)[2]


def put(call: Call) -> Response:
    """`PUT` of a whole object by its signed link."""
    key, sha256, size = _signed(call)
    received = call.received
    assert received is not None
    if (received.sha256, received.size) != (sha256, size):
        raise bad_request(
            f"an upload must be {size} bytes of SHA-256 {sha256}, got {received.size} bytes of {received.sha256}; "
            "send it again."
        )
    call.hub.objects.keep(received)
    with call.database.write() as writing:
        writing.execute("INSERT OR IGNORE INTO lfs VALUES (?, ?, ?, ?)", (key, sha256, size, time.time()))
    return Response(headers={"ETag": f'"{sha256}"'})
