"""Repositories: create, find, describe and delete them, their branches and tags."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from local_hub import history, spaces
from local_hub.calls import KINDS, PREFIXES, Call, Repo, answer_page, as_repo, repo_row
from local_hub.cards import SDKS, card_data
from local_hub.database import now
from local_hub.errors import HubError, bad_request, no_repo, no_revision
from local_hub.files import siblings
from local_hub.limits import check_ref_name, check_repo_name
from local_hub.objects import git_id


def whoami(call: Call) -> Response:
    """`GET /api/whoami-v2`."""
    call.demand_token()
    caller = call.caller
    role = {"none": "read", "admin": "write"}.get(caller.role, caller.role)
    token = {"displayName": caller.name, "role": role}
    who = {"type": "user", "id": caller.name, "name": caller.name, "fullname": caller.name, "avatarUrl": ""}
    return JSONResponse({**who, "orgs": [], "auth": {"type": "access_token", "accessToken": token}})


def create(call: Call) -> Response:
    """`POST /api/repos/create`: with a first commit, so that `main` always has one."""
    values = call.json()
    kind = _kind(call, values)
    namespace, name = _owner(call, values), call.text(values, "name", most=200)
    check_repo_name(namespace, name)
    call.demand("write", namespace, name)
    sdk = values.get("sdk")
    if kind == "space" and sdk not in SDKS:
        raise bad_request(f"a Space's sdk must be one of {', '.join(SDKS)}, got {str(sdk)[:50]!r}; pick one.")
    if "template" in values:
        raise HubError(501, "this Hub has no templates for Spaces; push the files yourself.")
    content = history.GITATTRIBUTES.encode()
    blob = history.Blob(git_id("blob", content), call.hub.objects.put(content), len(content))
    url = f"{call.base}/{PREFIXES[kind]}{namespace}/{name}"
    with call.database.write() as writing:
        if repo_row(call.database, kind, namespace, name) is not None:
            raise HubError(409, "You already created this repo", body={"url": url})
        writing.execute(
            "INSERT INTO repos (kind, namespace, name, private, sdk, created) VALUES (?, ?, ?, ?, ?, ?)",
            (kind, namespace, name, _is_private(call, values), sdk if kind == "space" else None, now()),
        )
        repo = as_repo(repo_row(call.database, kind, namespace, name))
        first = history.write_commit(
            call.hub, repo, {".gitattributes": blob}, None, call.caller.name, "initial commit", ""
        )
        history.move_ref(call.hub, repo, history.MAIN, first.oid)
        for setting in ("secrets", "variables"):
            for one in values.get(setting) or []:
                spaces.store(call, repo, setting, one)
    return JSONResponse({"url": url, "name": repo.id, "id": str(repo.key)})


def _kind(call: Call, values: dict[str, Any]) -> str:
    kind = call.text({"type": values.get("type") or "model"}, "type")
    if kind not in KINDS.values():
        raise HubError(501, f"this Hub has models, datasets and spaces, got {kind[:50]!r}; pick one.")
    return kind


def _owner(call: Call, values: dict[str, Any]) -> str:
    """Returns the namespace in the request, or else the caller's."""
    if values.get("organization"):
        return call.text(values, "organization", most=200)
    return call.caller.name


def _is_private(call: Call, values: dict[str, Any]) -> bool:
    visibility = values.get("visibility")
    if visibility not in (None, "public", "private"):
        raise HubError(501, f"visibility must be public or private, got {str(visibility)[:30]!r}; pick one.")
    return visibility == "private" or values.get("private") is True


def delete(call: Call) -> Response:
    """`DELETE /api/repos/delete`."""
    values = call.json()
    repo = call.find_repo(_kind(call, values), _owner(call, values), call.text(values, "name"), "admin")
    with call.database.write() as writing:
        writing.execute("DELETE FROM repos WHERE id = ?", (repo.key,))
    return JSONResponse({})


def settings(call: Call) -> Response:
    """`PUT …/settings`: public or private."""
    repo, values = call.repo("write"), call.json()
    if values.get("gated"):
        raise HubError(501, "this Hub does not gate repositories; make this one private and create tokens.")
    if "visibility" in values or "private" in values:
        with call.database.write() as writing:
            writing.execute("UPDATE repos SET private = ? WHERE id = ?", (_is_private(call, values), repo.key))
    return JSONResponse({"private": _is_private(call, values)})


# Descriptions


def info(call: Call) -> Response:
    """`GET /api/{kind}s/{id}[/revision/{revision}]`."""
    repo = call.repo()
    revision = call.param("revision") if "revision" in call.request.path_params else "main"
    described = describe(call, repo, revision, call.flag("blobs"))
    wanted = call.request.query_params.getlist("expand") + call.request.query_params.getlist("expand[]")
    if wanted:
        described = {name: described.get(name) for name in {"id", "_id", *wanted} if name in described}
    return JSONResponse(described)


def describe(call: Call, repo: Repo, revision: str, with_blobs: bool = False) -> dict[str, Any]:
    """Returns the Hub's description of a repository at a revision."""
    commit = history.find_commit(call.database, repo, revision)
    files = history.snapshot(call.database, commit.tree)
    card = card_data(call.hub, files.files.get("README.md"))
    found: dict[str, Any] = {
        "_id": f"{repo.key:024x}",
        "id": repo.id,
        "author": repo.namespace,
        "sha": commit.oid,
        "lastModified": commit.date,
        "createdAt": repo.created,
        "private": repo.private,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": _tags(card or {}),
        "usedStorage": sum(blob.size for blob in {blob.sha256: blob for blob in files.files.values()}.values()),
        "siblings": siblings(files, with_blobs),
    }
    if card is not None:
        found["cardData"] = card
    if repo.kind == "model":
        found["modelId"] = repo.id
        for name in ("pipeline_tag", "library_name", "model-index"):
            if card and name in card:
                found[name] = card[name]
    if repo.kind == "space":
        found |= {"sdk": (card or {}).get("sdk", repo.sdk), "runtime": spaces.RUNTIME}
    return found


def _tags(card: dict[str, Any]) -> list[str]:
    listed = card.get("tags")
    tags = [tag for tag in listed if isinstance(tag, str)] if isinstance(listed, list) else []
    for name, prefix in (("license", "license:"), ("datasets", "dataset:"), ("base_model", "base_model:")):
        value = card.get(name) or []
        tags += [f"{prefix}{one}" for one in (value if isinstance(value, list) else [value])]
    return tags


def list_all(call: Call) -> Response:
    """`GET /api/{kind}s`: the repositories that the caller may read, the newest first."""
    rows = call.database.read("SELECT * FROM repos WHERE kind = ? ORDER BY id DESC", call.kind)
    author, search = call.query("author").lower(), call.query("search").lower()
    wanted = set(call.request.query_params.getlist("filter")) | set(call.request.query_params.getlist("tags"))
    found = []
    for row in rows:
        repo = as_repo(row)
        if not call.may_read(row) or author not in ("", repo.namespace.lower()) or search not in repo.id.lower():
            continue
        described = describe(call, repo, "main")
        if wanted <= set(described["tags"]):
            found.append(described if call.flag("full") else described | {"siblings": None})
    if call.query("sort") in ("lastModified", "createdAt"):
        found.sort(key=lambda one: str(one[call.query("sort")]), reverse=True)
    return answer_page(call, found)


# Branches and tags


def refs(call: Call) -> Response:
    """`GET …/refs`."""
    repo = call.repo()
    found: dict[str, list[dict[str, str]]] = {"branches": [], "converts": [], "tags": [], "pullRequests": []}
    places = {"heads": "branches", "tags": "tags", "pr": "pullRequests"}
    for row in call.database.read("SELECT * FROM refs WHERE repo = ? ORDER BY name", repo.key):
        _, place, name = row["name"].split("/", 2)
        found[places[place]].append({"name": name, "ref": row["name"], "targetCommit": row["oid"]})
    return JSONResponse(found)


def create_branch(call: Call) -> Response:
    """`POST …/branch/{name}`, from `startingPoint` or main."""
    repo, name, values = call.repo("write"), call.param("ref"), call.json()
    start = call.text(values, "startingPoint", "main")
    return _create_ref(call, repo, name, f"refs/heads/{name}", start)


def create_tag(call: Call) -> Response:
    """`POST …/tag/{revision}`."""
    repo, values = call.repo("write"), call.json()
    name = call.text(values, "tag")
    return _create_ref(call, repo, name, f"refs/tags/{name}", call.param("ref"))


def _create_ref(call: Call, repo: Repo, name: str, ref: str, start: str) -> Response:
    check_ref_name(name)
    with call.database.write():
        if history.head_of(call.database, repo, ref) is not None:
            raise HubError(409, f"Reference already exists: {ref}.")
        commit = history.find_commit(call.database, repo, start)
        history.move_ref(call.hub, repo, ref, commit.oid)
    return JSONResponse({"ref": ref, "targetCommit": commit.oid})


def delete_branch(call: Call) -> Response:
    """`DELETE …/branch/{name}`: any but main."""
    name = call.param("ref")
    if name == "main":
        raise HubError(403, "main cannot be deleted; delete the repository instead.")
    return _delete_ref(call, f"refs/heads/{name}")


def delete_tag(call: Call) -> Response:
    """`DELETE …/tag/{name}`."""
    return _delete_ref(call, f"refs/tags/{call.param('ref')}")


def _delete_ref(call: Call, ref: str) -> Response:
    repo = call.repo("write")
    with call.database.write() as writing:
        if writing.execute("DELETE FROM refs WHERE repo = ? AND name = ?", (repo.key, ref)).rowcount == 0:
            raise no_revision(ref)
    return JSONResponse({})


def missing(call: Call) -> Response:
    """Answers a request for a repository without a namespace, of which this Hub has none."""
    raise no_repo(404 if call.caller.known else 401)
