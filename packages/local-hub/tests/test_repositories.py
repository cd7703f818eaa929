"""Repositories through huggingface_hub: created, filled, listed, read back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

from local_hub.running import Served


@pytest.fixture
def api(hub: Served) -> HfApi:
    return HfApi(endpoint=hub.url, token=hub.token())


def test_a_commit_of_small_and_large_files_is_read_back(api: HfApi, tmp_path: Path) -> None:
    repo = api.create_repo("org/first", private=True).repo_id
    weights = os.urandom(100_000)
    made = api.create_commit(
        repo,
        [
            CommitOperationAdd("README.md", b"---\nlicense: mit\n---\n# First\n"),
            CommitOperationAdd("deep/er/model.safetensors", weights),
        ],
        commit_message="Add it",
        commit_description="With words.",
    )

    info = api.model_info(repo, files_metadata=True)
    assert info.sha == made.oid
    assert info.private
    assert info.card_data.license == "mit"
    assert [one.rfilename for one in info.siblings] == [".gitattributes", "README.md", "deep/er/model.safetensors"]
    assert info.siblings[2].lfs.size == 100_000

    folder = api.snapshot_download(repo, local_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert (Path(folder) / "deep/er/model.safetensors").read_bytes() == weights
    assert (Path(folder) / "README.md").read_text() == "---\nlicense: mit\n---\n# First\n"


def test_a_pull_request_is_merged(api: HfApi) -> None:
    repo = api.create_repo("org/pulled", repo_type="dataset").repo_id
    proposed = api.create_commit(
        repo,
        [CommitOperationAdd("a.txt", b"one\n")],
        commit_message="Propose",
        repo_type="dataset",
        create_pr=True,
    )
    assert proposed.pr_num == 1
    assert not api.file_exists(repo, "a.txt", repo_type="dataset")
    assert api.file_exists(repo, "a.txt", repo_type="dataset", revision="refs/pr/1")

    api.merge_pull_request(repo, 1, repo_type="dataset")

    assert api.file_exists(repo, "a.txt", repo_type="dataset")
    assert api.get_discussion_details(repo, 1, repo_type="dataset").status == "merged"


def test_files_and_folders_are_deleted(api: HfApi) -> None:
    repo = api.create_repo("org/emptied").repo_id
    files = [CommitOperationAdd(path, path.encode()) for path in ("a", "b/c", "b/d", "e/f")]
    api.create_commit(repo, files, commit_message="Fill")
    api.create_commit(
        repo, [CommitOperationDelete("a"), CommitOperationDelete("b/", is_folder=True)], commit_message="Empty"
    )
    assert api.list_repo_files(repo) == [".gitattributes", "e/f"]
