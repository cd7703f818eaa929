"""Rights: tokens, private repositories, signed links."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import sqlite3
from urllib.parse import urlsplit

import pytest
from hub_fixtures import httpx
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from local_hub.running import Served, new_token

PRIVATE = "org/private"


@pytest.fixture(scope="module", autouse=True)
def _repositories(hub: Served) -> None:
    api = HfApi(endpoint=hub.url, token=hub.token())
    for name, private in ((PRIVATE, True), ("org/public", False)):
        api.create_repo(name, private=private)
        api.create_commit(name, [CommitOperationAdd("a.txt", b"a\n")], commit_message="Fill")


def api_of(hub: Served, *arguments: object) -> HfApi:
    return HfApi(endpoint=hub.url, token=hub.token(*arguments))  # type: ignore[arg-type]


def commit(api: HfApi, repo: str, **options: object) -> None:
    api.create_commit(repo, [CommitOperationAdd("b.txt", b"b\n")], commit_message="Add b", **options)  # type: ignore[call-overload]


def test_a_private_repository_seems_missing_to_callers_without_the_right(hub: Served) -> None:
    for api in (HfApi(endpoint=hub.url, token=False), api_of(hub, "eve", "none")):
        messages = []
        for repo in (PRIVATE, "org/missing"):
            with pytest.raises(RepositoryNotFoundError) as missing:
                api.model_info(repo)
            with pytest.raises(RepositoryNotFoundError):
                api.get_hf_file_metadata(url=f"{hub.url}/{repo}/resolve/main/a.txt")
            response = missing.value.response
            messages.append((response.status_code, response.json(), response.headers["X-Error-Code"]))
        assert messages[0] == messages[1]
        assert PRIVATE not in {model.id for model in api.list_models()}
    assert PRIVATE in {model.id for model in api_of(hub, "bob", "read").list_models()}


def test_a_token_of_another_server_is_refused(hub: Served) -> None:
    answer = httpx.get(f"{hub.url}/api/models/org/public", headers={"Authorization": "Bearer hf_" + "0" * 40})
    assert answer.status_code == 401
    assert answer.headers["X-Error-Message"] == "Invalid credentials in Authorization header"


def test_a_token_that_reads_writes_nothing(hub: Served) -> None:
    api = api_of(hub, "bob", "read")
    assert api.model_info(PRIVATE).private
    for action in (
        lambda: commit(api, "org/public"),
        lambda: commit(api, "org/public", create_pr=True),
        lambda: api.create_repo("bob/own"),
        lambda: api.create_tag("org/public", tag="v1"),
        lambda: api.update_repo_settings("org/public", private=True),
        lambda: api.create_discussion("org/public", title="Hello"),
    ):
        with pytest.raises(HfHubHTTPError) as refused:
            action()
        assert refused.value.response.status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "reader", "nobody"),
    [
        ("POST", "/api/models/org/public/preupload/main", 403, 401),
        ("POST", "/api/models/org/private/paths-info/main", None, 401),
        ("POST", "/api/models/org/public/tag/main", 403, 401),
        ("PUT", "/api/models/org/public/settings", 403, 401),
        ("POST", "/api/models/org/public/discussions", 403, 401),
        ("POST", "/api/models/org/public/discussions/1/merge", 403, 401),
        ("POST", "/api/repos/create", 403, 401),
        ("DELETE", "/api/repos/delete", 403, 401),
        ("POST", "/org/private.git/info/lfs/objects/batch", None, 401),
        ("POST", "/org/public.git/info/lfs/objects/batch", 403, 401),
        ("PUT", f"/lfs/1/{'0' * 64}/5", 403, 403),
        ("GET", "/api/models/org/public", 200, 200),
    ],
)
def test_rights_are_checked_before_a_body_is_read(
    hub: Served, method: str, path: str, reader: int | None, nobody: int
) -> None:
    """Ten megabytes are announced and none is sent: an answer does not wait for them."""
    token = f"Authorization: Bearer {hub.token('bob', 'read')}\r\n"
    for header, status in ((token, reader), ("", nobody)):
        if status is None:
            continue
        with socket.create_connection(("127.0.0.1", urlsplit(hub.url).port), timeout=20) as connection:
            head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n{header}\r\n"
            connection.sendall(head.encode())
            assert connection.recv(4096).startswith(f"HTTP/1.1 {status}".encode())


def test_a_caller_without_a_token_may_send_a_megabyte_at_most(hub: Served) -> None:
    for size, status in ((2**20, 200), (2**20 + 1, 413)):
        answer = httpx.post(f"{hub.url}/api/models/org/public/paths-info/main", content=b"a" * size)
        assert answer.status_code == status


def test_to_delete_is_for_admins(hub: Served) -> None:
    api = api_of(hub)
    api.create_repo("org/short-lived")
    with pytest.raises(HfHubHTTPError, match="403"):
        api.delete_repo("org/short-lived")
    admin = api_of(hub, "root", "admin")
    admin.delete_repo("org/short-lived")
    assert not admin.repo_exists("org/short-lived")


def test_rights_by_repository_go_before_those_of_the_token(hub: Served) -> None:
    token = hub.token("carol", "none", {"carol/*": "write", PRIVATE: "read"})
    api = HfApi(endpoint=hub.url, token=token)
    api.create_repo("carol/own", private=True)
    commit(api, "carol/own")
    assert api.model_info(PRIVATE).id == PRIVATE
    with pytest.raises(HfHubHTTPError, match="403"):
        commit(api, PRIVATE)
    # Who may write somewhere may propose anywhere they can see.
    commit(api, PRIVATE, create_pr=True)


def test_only_its_author_and_writers_add_to_a_pull_request(hub: Served) -> None:
    carol, dave = (
        HfApi(endpoint=hub.url, token=hub.token(name, "read", {f"{name}/*": "write"})) for name in ("carol", "dave")
    )
    made = carol.create_commit("org/public", [CommitOperationAdd("c", b"c")], commit_message="c", create_pr=True)
    carol.create_commit("org/public", [CommitOperationAdd("d", b"d")], commit_message="d", revision=made.pr_revision)
    with pytest.raises(HfHubHTTPError, match="403"):
        dave.create_commit(
            "org/public", [CommitOperationAdd("e", b"e")], commit_message="e", revision=made.pr_revision
        )
    for api in (carol, dave):
        with pytest.raises(HfHubHTTPError, match="403"):
            api.merge_pull_request("org/public", made.pr_num)
    with pytest.raises(HfHubHTTPError, match="403"):
        dave.change_discussion_status("org/public", made.pr_num, "closed")
    carol.change_discussion_status("org/public", made.pr_num, "closed")
    with pytest.raises(HfHubHTTPError, match="403"):
        carol.create_commit(
            "org/public", [CommitOperationAdd("f", b"f")], commit_message="f", revision=made.pr_revision
        )


def test_tokens_are_stored_as_hashes_alone(hub: Served) -> None:
    token = hub.token("frank")
    with contextlib.closing(sqlite3.connect(hub.folder / "hub.sqlite")) as database:
        assert token not in str(database.execute("SELECT * FROM tokens").fetchall())
    assert (hub.folder / "hub.sqlite").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("arguments", [("ada", "all"), ("a/b", "read"), ("ada", "read", {"x": "write"})])
def test_a_token_of_no_right_name_or_repository_is_refused(hub: Served, arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"rights must be|a repository is named"):
        new_token(hub.folder, *arguments)  # type: ignore[arg-type]


# Links: uploads by LFS carry no token, the link itself is the right


@pytest.fixture
def upload(hub: Served, request: pytest.FixtureRequest) -> tuple[str, bytes]:
    content = request.node.name.encode()  # what another test has sent needs no link
    body = {
        "operation": "upload",
        "objects": [{"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}],
    }
    token = hub.token()
    answer = httpx.post(
        f"{hub.url}/org/public.git/info/lfs/objects/batch", json=body, headers={"Authorization": f"Bearer {token}"}
    )
    return answer.json()["objects"][0]["actions"]["upload"]["href"], content


def test_a_changed_link_is_refused(upload: tuple[str, bytes]) -> None:
    href, content = upload
    signature = href.rpartition("=")[2]
    flipped = ("0" if signature[0] != "0" else "1") + signature[1:]
    for wrong in (
        href.partition("?")[0],
        href.replace(signature, flipped),
        href.replace("expires=1", "expires=2"),
    ):
        assert httpx.put(wrong, content=content).status_code == 403


def test_an_upload_of_other_bytes_is_refused(upload: tuple[str, bytes]) -> None:
    href, content = upload
    assert httpx.put(href, content=content[:-1] + b"!").status_code == 400
    assert httpx.put(href, content=content + b"!").status_code == 413


def test_nobody_commits_a_large_file_by_its_hash_alone(hub: Served, upload: tuple[str, bytes]) -> None:
    href, content = upload
    assert httpx.put(href, content=content).status_code == 200
    sha256 = href.split("/")[5]
    lines = [
        {"key": "header", "value": {"summary": "Steal"}},
        {"key": "lfsFile", "value": {"path": "x.bin", "algo": "sha256", "oid": sha256, "size": len(content)}},
    ]
    api = api_of(hub)
    api.create_repo("org/thief")
    answer = httpx.post(
        f"{hub.url}/api/models/org/thief/commit/main",
        content="\n".join(json.dumps(line) for line in lines),
        headers=api._build_hf_headers(),
    )
    assert answer.status_code == 400
    assert "must be uploaded before its commit" in answer.json()["error"]
