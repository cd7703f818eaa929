"""What one caller sends costs the others nothing: among ten good repositories and proposals a hostile one is alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_fixtures import httpx
from huggingface_hub import CommitOperationAdd, HfApi

from local_hub.limits import Limits
from local_hub.running import Served, open_hub, serving

CARDS = (
    "2024-01-01: x",
    "value: .nan",
    "date: 2024-01-01",
    "a: !!bool maybe",
    "a: !!int ''",
    "? [1, 2]\n: x",
    "? {a: 1}\n: x",
    "a: !!binary aGk=",
    "<<: 5",
    "a: !!set {b}",
    "a: &a [*a]",
    "1e999: x",
)
"""Heads of cards, each with a value that JSON has not, or that a parser of YAML fails on."""


@pytest.fixture
def owner(hub: Served) -> HfApi:
    return HfApi(endpoint=hub.url, token=hub.token())


def added(api: HfApi, repo: str, path: str, text: str) -> bool:
    """Whether the Hub took a file. It refuses a card with a sentence, which its client makes a `ValueError`."""
    try:
        operations = [CommitOperationAdd(path, text.encode())]
        api.create_commit(repo, operations, commit_message="Add")
    except ValueError:
        return False
    return True


def test_ten_good_models_are_listed_among_hostile_ones(hub: Served, owner: HfApi) -> None:
    good = {f"org/good{place}" for place in range(10)}
    for repo in sorted(good):
        owner.create_repo(repo)
        assert added(owner, repo, "README.md", "---\ntags: [mine]\n---\n")
    stranger = HfApi(endpoint=hub.url, token=hub.token(name="eve", rights="none", repos={"eve/*": "admin"}))
    for place, text in enumerate(CARDS):
        repo = f"eve/bad{place}"
        stranger.create_repo(repo)
        added(stranger, repo, "README.md", f"---\n{text}\n---\n")
    listed = owner.list_models()
    assert good <= {one.id for one in listed}
    assert good == {one.id for one in owner.list_models(filter="mine")}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("small"), limits=Limits(lfs_bytes=2**20)) as served:
        yield served


def test_a_line_of_a_commit_that_is_no_file_is_short(small: Served) -> None:
    api = HfApi(endpoint=small.url, token=small.token())
    api.create_repo("org/lines")
    url, headers = f"{small.url}/api/models/org/lines/commit/main", api._build_hf_headers()
    many = ",".join(["[]"] * 30_000)
    content = "A" * 100_000
    for line in (
        f'{{"key": "header", "value": {{"summary": "x", "more": [{many}]}}}}',
        f'{{"key": "header", "value": {{"summary": "x", "more": [{many.replace("[]", chr(34) * 2)}]}}}}',
        f'{{"key": "header", "value": {{"summary": "{content}\\ud800"}}}}',
        f'{{"key": "file", "value": {{"path": "{content}\ud800", "content": ""}}}}',
        f'{{"key": "file", "value": {{"path": "a", "content": "{content * 20}"}}}}',
        "[" * 100_000,
        " " * 100_000 + "x",
    ):
        sent = line.encode("utf-8", "surrogatepass") + b"\n"
        answer = httpx.post(url, content=sent, headers={**headers, "Content-Type": "application/x-ndjson"})
        assert answer.status_code == 400, answer.text
    files = [CommitOperationAdd("b.txt", b"b" * 900_000), CommitOperationAdd("\u00e9.txt", b"x")]
    api.create_commit("org/lines", files, commit_message="Add")
    assert "b.txt" in api.list_repo_files("org/lines")


def test_a_sweep_leaves_an_object_that_an_upload_was_told_is_here(tmp_path: Path) -> None:
    content = b"\0" * 5000
    sha256 = hashlib.sha256(content).hexdigest()
    with serving(tmp_path / "hub") as served:
        api = HfApi(endpoint=served.url, token=served.token())
        api.create_repo("org/large")
        api.preupload_lfs_files("org/large", [CommitOperationAdd("a.bin", content)])
        with open_hub(tmp_path / "hub") as hub, hub.database.write() as writing:
            writing.execute("UPDATE lfs SET created = 0")
        asked = {"operation": "upload", "objects": [{"oid": sha256, "size": 5000}]}
        headers = api._build_hf_headers()
        answer = httpx.post(f"{served.url}/org/large.git/info/lfs/objects/batch", json=asked, headers=headers)
        assert "actions" not in answer.json()["objects"][0]  # it is here
    with serving(tmp_path / "hub") as served:  # which sweeps at its start
        lines = [
            {"key": "header", "value": {"summary": "Add"}},
            {"key": "lfsFile", "value": {"path": "a.bin", "algo": "sha256", "oid": sha256, "size": 5000}},
        ]
        url = f"{served.url}/api/models/org/large/commit/main"
        answer = httpx.post(url, content="\n".join(map(json.dumps, lines)), headers=headers)
        assert answer.status_code == 200, answer.text
