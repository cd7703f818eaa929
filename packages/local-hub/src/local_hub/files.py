"""Downloads: the files of a revision, their descriptions, and their bytes."""

from __future__ import annotations

import mimetypes
import urllib.parse
from typing import Any

from starlette.responses import FileResponse, JSONResponse, Response

from local_hub import history
from local_hub.calls import Call, answer_page
from local_hub.errors import bad_request, no_entry

_MOST_PATHS = 10_000
# An uploaded file may be a page with scripts: in a browser it must not act with this server's origin.
_INERT = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Access-Control-Expose-Headers": "X-Repo-Commit, X-Linked-Size, X-Linked-ETag, ETag",
}


class ObjectResponse(FileResponse):
    """A file in chunks that keep a fast connection busy."""

    chunk_size = 2**20


def resolve(call: Call) -> Response:
    """`GET|HEAD /{repo}/resolve/{revision}/{path}`: whole, in ranges, or 304 if the client has it."""
    repo = call.repo()
    commit, path = history.find_commit(call.database, repo, call.param("revision")), call.param("path")
    blob = history.snapshot(call.database, commit.tree).files.get(path)
    if blob is None:
        raise no_entry(path, commit.oid)
    name = urllib.parse.quote(path.rpartition("/")[2])
    disposition = f"inline; filename*=UTF-8''{name}; filename=\"{name}\";"
    headers = {"X-Repo-Commit": commit.oid, "ETag": f'"{blob.etag}"', "Content-Disposition": disposition, **_INERT}
    if blob.pointer_size is not None:
        headers |= {"X-Linked-Size": str(blob.size), "X-Linked-ETag": f'"{blob.sha256}"'}
    held = [one.strip() for one in call.request.headers.get("if-none-match", "").split(",")]
    if headers["ETag"] in held or "*" in held:
        return Response(status_code=304, headers=headers)
    return ObjectResponse(call.hub.objects.path(blob.sha256), headers=headers, media_type=_media_type(path))


def _media_type(path: str) -> str:
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return "text/plain" if kind.startswith("text/") or kind.endswith(("xml", "javascript")) else kind


def tree(call: Call) -> Response:
    """`GET …/tree/{revision}[/{path}]`, in pages of 1,000, without the last commit of each."""
    repo = call.repo()
    commit = history.find_commit(call.database, repo, call.param("revision"))
    files = history.snapshot(call.database, commit.tree)
    folder = call.param("path").strip("/") if "path" in call.request.path_params else ""
    if folder not in files.folders:
        raise no_entry(folder, commit.oid)
    prefix = f"{folder}/" if folder else ""
    within = [path for path in (*files.folders, *files.files) if path and path.startswith(prefix)]
    if not call.flag("recursive"):
        within = [path for path in within if "/" not in path[len(prefix) :]]
    return answer_page(call, [describe(files, path) for path in sorted(within)])


def paths_info(call: Call) -> Response:
    """`POST …/paths-info/{revision}`: describes those of the given paths that exist."""
    repo = call.repo()
    commit = history.find_commit(call.database, repo, call.param("revision"))
    files = history.snapshot(call.database, commit.tree)
    if call.request.headers.get("content-type", "").startswith("application/json"):
        raise bad_request("paths must be sent as a form, got JSON; send one.")
    text = call.body.decode()
    try:
        paths = urllib.parse.parse_qs(text, max_num_fields=_MOST_PATHS).get("paths", [])
    except ValueError:
        raise bad_request(f"a request must have at most {_MOST_PATHS} paths, got more; send fewer.") from None
    kept = [path for path in (one.strip("/") for one in paths) if path in files.files or files.folders.get(path)]
    return JSONResponse([describe(files, path) for path in kept])


def describe(files: history.Snapshot, path: str) -> dict[str, Any]:
    """Returns the Hub's description of a file or a folder."""
    blob = files.files.get(path)
    if blob is None:
        found: dict[str, Any] = {"type": "directory", "oid": files.folders[path], "size": 0, "path": path}
    else:
        found = {"type": "file", "oid": blob.oid, "size": blob.size, "path": path}
        if blob.pointer_size is not None:
            found["lfs"] = {"oid": blob.sha256, "size": blob.size, "pointerSize": blob.pointer_size}
    return found


def siblings(files: history.Snapshot, with_blobs: bool) -> list[dict[str, Any]]:
    """Returns all files as in the Hub's description of a repository."""
    found: list[dict[str, Any]] = []
    for path, blob in sorted(files.files.items()):
        found.append({"rfilename": path})
        if with_blobs:
            found[-1] |= {"size": blob.size, "blobId": blob.oid}
            if blob.pointer_size is not None:
                found[-1]["lfs"] = {"size": blob.size, "sha256": blob.sha256, "pointerSize": blob.pointer_size}
    return found


def commits(call: Call) -> Response:
    """`GET …/commits/{revision}`, the newest first."""
    repo = call.repo()
    commit = history.find_commit(call.database, repo, call.param("revision"))
    found = [
        {
            "id": one.oid,
            "title": one.title,
            "message": one.message,
            "authors": [{"user": one.author}],
            "date": one.date,
        }
        for one in history.ancestry(call.database, repo, commit)
    ]
    return answer_page(call, found)
