"""The protocol: ranges, conditions, pages, parts, conflicts, limits, and unsupported requests."""

from __future__ import annotations

import base64
import gc
import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hub_fixtures import httpx
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, HfApi
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RevisionNotFoundError

from local_hub.limits import Limits
from local_hub.running import Served, serving

REPO = "org/protocol"
CONTENT = bytes(range(256)) * 40
LISTENS = (socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


@pytest.fixture(scope="module")
def api(hub: Served) -> HfApi:
    api = HfApi(endpoint=hub.url, token=hub.token())
    api.create_repo(REPO)
    files = [CommitOperationAdd("text.txt", b"hello\n"), CommitOperationAdd("in/data.bin", CONTENT)]
    api.create_commit(REPO, files, commit_message="Fill")
    return api


@pytest.fixture
def client(hub: Served, api: HfApi) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=hub.url, headers=api._build_hf_headers()) as client:
        yield client


def test_the_rest_of_an_answer_does_not_wait_for_an_acknowledgement(client: httpx.Client, hub: Served) -> None:
    assert client.get(f"/{REPO}/resolve/main/text.txt").is_success
    port = urlsplit(hub.url).port
    connections = [one for one in gc.get_objects() if issubclass(type(one), socket.socket) and one.fileno() >= 0]
    answering = [one for one in connections if one.getsockname()[1:2] == (port,) and not one.getsockopt(*LISTENS)]
    assert answering
    assert all(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in answering)


class TestDownloads:
    LARGE = f"/{REPO}/resolve/main/in/data.bin"

    def test_head_returns_size_etag_and_commit_without_the_bytes(self, client: httpx.Client, api: HfApi) -> None:
        answer = client.head(self.LARGE)
        digest = hashlib.sha256(CONTENT).hexdigest()
        assert answer.headers["ETag"] == answer.headers["X-Linked-ETag"] == f'"{digest}"'
        assert answer.headers["Content-Length"] == answer.headers["X-Linked-Size"] == str(len(CONTENT))
        assert answer.headers["X-Repo-Commit"] == api.model_info(REPO).sha
        assert answer.content == b""

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [("bytes=0-9", CONTENT[:10]), ("bytes=100-", CONTENT[100:]), ("bytes=-5", CONTENT[-5:]), ("bytes=5-5", b"\5")],
    )
    def test_a_range_is_answered_with_its_bytes(self, client: httpx.Client, wanted: str, expected: bytes) -> None:
        answer = client.get(self.LARGE, headers={"Range": wanted})
        assert answer.status_code == 206
        assert answer.content == expected
        assert answer.headers["Content-Range"].endswith(f"/{len(CONTENT)}")

    def test_a_range_beyond_the_end_is_refused(self, client: httpx.Client) -> None:
        assert client.get(self.LARGE, headers={"Range": f"bytes={len(CONTENT)}-"}).status_code == 416

    def test_a_range_of_another_version_is_answered_whole(self, client: httpx.Client) -> None:
        answer = client.get(self.LARGE, headers={"Range": "bytes=0-9", "If-Range": '"other"'})
        assert (answer.status_code, answer.content) == (200, CONTENT)

    def test_what_the_client_has_is_not_sent_again(self, client: httpx.Client) -> None:
        etag = client.head(self.LARGE).headers["ETag"]
        assert client.get(self.LARGE, headers={"If-None-Match": etag}).status_code == 304

    def test_a_page_of_others_is_inert(self, client: httpx.Client, api: HfApi) -> None:
        page = [CommitOperationAdd("page.html", b"<script>alert(1)</script>")]
        api.create_commit(REPO, page, commit_message="Add a page")
        answer = client.get(f"/{REPO}/resolve/main/page.html")
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in answer.headers["Content-Security-Policy"]

    def test_what_is_missing_has_its_own_exception(self, api: HfApi) -> None:
        with pytest.raises(EntryNotFoundError):
            api.hf_hub_download(REPO, "missing.txt")
        with pytest.raises(RevisionNotFoundError):
            api.hf_hub_download(REPO, "text.txt", revision="missing")
        with pytest.raises(EntryNotFoundError):
            list(api.list_repo_tree(REPO, "missing"))


class TestListing:
    def test_a_long_listing_comes_in_pages(self, api: HfApi, client: httpx.Client) -> None:
        api.create_repo("org/many")
        files = [CommitOperationAdd(f"f/{number:04d}", b"") for number in range(1100)]
        api.create_commit("org/many", files, commit_message="Fill")
        first = client.get("/api/models/org/many/tree/main", params={"recursive": True})
        assert len(first.json()) == 1000
        assert 'rel="next"' in first.headers["Link"]
        assert len(list(api.list_repo_tree("org/many", recursive=True))) == 1102  # .gitattributes and the folder f

    def test_a_folder_lists_its_content(self, api: HfApi) -> None:
        names = [one.path for one in api.list_repo_tree(REPO)]
        assert names[:2] == [".gitattributes", "in"]
        [data] = api.list_repo_tree(REPO, "in")
        assert data.path == "in/data.bin"
        assert data.lfs.sha256 == hashlib.sha256(CONTENT).hexdigest()
        [folder, file] = api.get_paths_info(REPO, ["in", "text.txt", "missing"])
        assert (folder.path, file.size) == ("in", 6)

    def test_revisions_are_named_by_branch_tag_and_commit(self, api: HfApi) -> None:
        head = api.model_info(REPO).sha
        api.create_branch(REPO, branch="dev/one")
        api.create_tag(REPO, tag="v1.0", tag_message="One")
        api.create_commit(REPO, [CommitOperationAdd("x", b"x")], commit_message="On dev", revision="dev/one")
        for revision in ("v1.0", head, head[:8], "main"):
            assert api.model_info(REPO, revision=revision).sha == head
        assert api.model_info(REPO, revision="dev/one").sha != head
        refs = api.list_repo_refs(REPO)
        assert {one.name for one in refs.branches} == {"main", "dev/one"}
        assert [one.target_commit for one in refs.tags] == [head]
        with pytest.raises(HfHubHTTPError, match="409"):
            api.create_tag(REPO, tag="v1.0")
        api.delete_branch(REPO, branch="dev/one")
        api.delete_tag(REPO, tag="v1.0")
        with pytest.raises(HfHubHTTPError, match="403"):
            api.delete_branch(REPO, branch="main")

    def test_history_lists_authors_and_messages(self, api: HfApi) -> None:
        api.create_repo("org/told", repo_type="dataset")
        api.create_commit(
            "org/told",
            [CommitOperationAdd("a", b"1")],
            commit_message="Say",
            commit_description="why\nHf-Credit-Publish: 12",
            repo_type="dataset",
        )
        last, first = api.list_repo_commits("org/told", repo_type="dataset")
        assert (last.title, last.message, last.authors) == ("Say", "why\nHf-Credit-Publish: 12", ["admin"])
        assert first.title == "initial commit"


class TestCommits:
    def test_an_existing_repository_is_refused_with_its_address(self, api: HfApi, hub: Served) -> None:
        with pytest.raises(HfHubHTTPError, match="409"):
            api.create_repo(REPO)
        assert api.create_repo(REPO, exist_ok=True) == f"{hub.url}/{REPO}"
        with pytest.raises(HfHubHTTPError, match="409"):
            api.create_repo(REPO.upper())

    def test_a_commit_upon_an_old_head_is_refused(self, api: HfApi) -> None:
        old = api.list_repo_commits(REPO)[-1].commit_id
        with pytest.raises(HfHubHTTPError, match="412"):
            api.create_commit(REPO, [CommitOperationAdd("y", b"y")], commit_message="Late", parent_commit=old)

    def test_what_is_unchanged_is_neither_sent_nor_committed(self, api: HfApi) -> None:
        head = api.model_info(REPO).sha
        files = [CommitOperationAdd("text.txt", b"hello\n"), CommitOperationAdd("in/data.bin", CONTENT)]
        assert api.create_commit(REPO, files, commit_message="Again").oid == head

    def test_a_large_file_is_copied_within_its_repository(self, api: HfApi) -> None:
        api.create_repo("org/copied")
        api.create_commit("org/copied", [CommitOperationAdd("data.bin", CONTENT)], commit_message="Fill")
        copy = CommitOperationCopy("data.bin", "copy.bin")
        api.create_commit("org/copied", [copy], commit_message="Copy")
        assert api.get_paths_info("org/copied", "copy.bin")[0].size == len(CONTENT)

    def test_how_a_file_is_sent_follows_attributes_size_and_content(self, client: httpx.Client, api: HfApi) -> None:
        api.create_repo("org/modes")
        own = CommitOperationAdd(".gitattributes", b"*.dat filter=lfs\nsmall/*.dat !filter\n*.bin filter=lfs\n")
        api.create_commit("org/modes", [own, CommitOperationAdd(".gitignore", b"*.log\n")], commit_message="Set")
        sizes = {"a.dat": 5, "small/a.dat": 5, "b.txt": 5, "c.txt": 10 * 2**20, "empty.bin": 0, "x.log": 5, "d.txt": 5}
        files = [
            {
                "path": path,
                "size": size,
                "sample": base64.b64encode(b"\0" if path == "d.txt" else b"text").decode(),
            }
            for path, size in sizes.items()
        ]
        answer = client.post("/api/models/org/modes/preupload/main", json={"files": files}).json()["files"]
        modes = {one["path"]: (one["uploadMode"] == "lfs", one["shouldIgnore"]) for one in answer}
        assert modes == {
            "a.dat": (True, False),
            "small/a.dat": (False, False),
            "b.txt": (False, False),
            "c.txt": (True, False),
            "empty.bin": (False, False),
            "x.log": (False, True),
            "d.txt": (True, False),
        }

    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            ([], "must begin with its header"),
            ([["header"]], "must have key and value"),
            ([{"key": "header", "value": {}}, {"key": "execute", "value": {}}], "of a known kind"),
            ([{"key": "file", "value": {"path": "a", "content": "%%"}}], "must be base64"),
            ([{"key": "file", "value": {"path": "a", "content": 5}}], "content in base64 or utf-8"),
            ([{"key": "file", "value": {"path": 5, "content": ""}}], "path must be a text"),
            (
                [
                    {
                        "key": "file",
                        "value": {
                            "path": "a",
                            "encoding": "utf-8",
                            "content": "version https://git-lfs.github.com/spec/v1\n",
                        },
                    }
                ],
                "a pointer of LFS",
            ),
        ],
    )
    def test_a_malformed_commit_is_refused(self, client: httpx.Client, lines: list[object], message: str) -> None:
        body = "\n".join(json.dumps(line) for line in lines)
        answer = client.post(f"/api/models/{REPO}/commit/main", content=body)
        assert answer.status_code == 400
        assert message in answer.json()["error"]

    def test_endlessly_nested_values_are_refused(self, client: httpx.Client) -> None:
        answer = client.post(f"/api/models/{REPO}/commit/main", content="[" * 60_000)
        assert answer.status_code == 400
        answer = client.post(f"/api/models/{REPO}/commit/main", content="[" * 200_000)
        assert answer.status_code == 400
        assert client.post("/api/validate-yaml", content="[" * 200_000).status_code == 400

    @pytest.mark.parametrize(
        ("card", "kind"),
        [
            ("---\nlicense: [\n---\n", "model"),
            ("---\n- a\n---\n", "model"),
            ("---\ntags: fine\n---\n", "dataset"),
            ("---\nsdk: magic\n---\n", "space"),
            ("---\ncolorFrom: ultraviolet\n---\n", "space"),
            (
                "---\na: &a [1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" + "c: [" + "*b," * 20_000 + "]\n---\n",
                "model",
            ),
            ("---\nx: '" + "y" * 70_000 + "'\n---\n", "model"),
        ],
    )
    def test_a_card_whose_head_cannot_be_read_is_refused(self, api: HfApi, card: str, kind: str) -> None:
        api.create_repo("org/carded", repo_type=kind, space_sdk="static" if kind == "space" else None, exist_ok=True)
        with pytest.raises(ValueError, match="Invalid metadata"):
            api.create_commit(
                "org/carded", [CommitOperationAdd("README.md", card.encode())], commit_message="x", repo_type=kind
            )


def test_a_body_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, limits=Limits(body_bytes=1000, commit_bytes=2000, commit_files=2)) as hub:
        api = HfApi(endpoint=hub.url, token=hub.token())
        api.create_repo("org/small")
        headers = api._build_hf_headers()
        assert httpx.post(f"{hub.url}/api/validate-yaml", content=b" " * 1001, headers=headers).status_code == 413
        commit = f"{hub.url}/api/models/org/small/commit/main"
        assert httpx.post(commit, content=b"\n" * 2001, headers=headers).status_code == 413
        files = [CommitOperationAdd(name, b"") for name in "abc"]
        with pytest.raises(HfHubHTTPError, match="at most 2 files"):
            api.create_commit("org/small", files, commit_message="Too many")


def test_more_paths_than_are_described_at_once_are_refused(client: httpx.Client) -> None:
    answer = client.post(f"/api/models/{REPO}/paths-info/main", data={"paths": ["a"] * 10_001})
    assert answer.status_code == 400
    assert "at most 10000" in answer.json()["error"]
    answer = client.post(f"/api/models/{REPO}/paths-info/main", json={"paths": ["a"]})
    assert (answer.status_code, "must be sent as a form" in answer.json()["error"]) == (400, True)


def test_patterns_that_backtrack_do_not_hold_up_a_request(client: httpx.Client, api: HfApi) -> None:
    api.create_repo("org/patterns")
    pattern = "*a" * 30 + "b"
    own = CommitOperationAdd(".gitattributes", f"{pattern} filter=lfs\n".encode())
    api.create_commit("org/patterns", [own], commit_message="Set")
    asked = {"files": [{"path": "a" * 250, "size": 5, "sample": ""}], "gitIgnore": pattern}
    [answer] = client.post("/api/models/org/patterns/preupload/main", json=asked).json()["files"]
    assert (answer["uploadMode"], answer["shouldIgnore"]) == ("regular", False)


def test_a_body_with_two_lengths_is_refused(hub: Served) -> None:
    head = "POST /api/validate-yaml HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", urlsplit(hub.url).port)) as connection:
        connection.sendall(head.encode() + b"0\r\n\r\nGET /")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/api/models/{REPO}/xet-write-token/main"),
        ("GET", f"/{REPO}.git/info/refs?service=git-upload-pack"),
        ("POST", "/api/buckets/org/name"),
        ("POST", "/api/jobs/org"),
        ("POST", "/api/settings/webhooks"),
        ("GET", "/oauth/userinfo"),
        ("POST", f"/api/models/{REPO}/super-squash/main"),
        ("POST", f"/api/models/{REPO}/duplicate"),
        ("GET", "/api/kernels/org/name"),
        ("PUT", f"/api/models/{REPO}/settings"),
    ],
)
def test_unsupported_requests_get_a_reason_in_one_sentence(client: httpx.Client, method: str, path: str) -> None:
    answer = client.request(method, path, json={"gated": "auto"} if method == "PUT" else None)
    assert answer.status_code == 501
    assert answer.json()["error"].endswith(".")
