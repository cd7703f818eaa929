"""Repositories through huggingface_hub: created, filled, listed, read back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

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


@pytest.fixture
def owner(hub: Served) -> HfApi:
    """A client with the right to move repositories."""
    return HfApi(endpoint=hub.url, token=hub.token("owner", "admin"))


def test_an_old_name_redirects_to_the_repository_until_another_takes_it(owner: HfApi, tmp_path: Path) -> None:
    weights = os.urandom(50_000)
    owner.create_repo("org/before", repo_type="dataset")
    files = [CommitOperationAdd("a b.txt", b"one"), CommitOperationAdd("data/x.parquet", weights)]
    oid = owner.create_commit("org/before", files, commit_message="Fill", repo_type="dataset").oid
    for source, target in (("org/before", "org/between"), ("org/between", "org/after")):
        owner.move_repo(source, target, repo_type="dataset")

    assert owner.dataset_info("org/before").id == "org/after"
    listed = owner.list_repo_files("org/between", repo_type="dataset", revision=oid)
    assert listed == [".gitattributes", "a b.txt", "data/x.parquet"]
    there = owner.snapshot_download("org/before", repo_type="dataset", cache_dir=tmp_path)
    assert (Path(there) / "data/x.parquet").read_bytes() == weights
    assert (Path(there) / "a b.txt").read_bytes() == b"one"
    # Written to by its old name too: a large file by LFS and a small one.
    more = [CommitOperationAdd("y.parquet", os.urandom(50_000)), CommitOperationAdd("z.txt", b"z" * 1_000_000)]
    made = owner.create_commit("org/before", more, commit_message="More", repo_type="dataset", parent_commit=oid)
    assert owner.dataset_info("org/after").sha == made.oid

    # A name that is taken is that repository's, and the way from the others stays.
    owner.create_repo("org/before", repo_type="dataset")
    assert owner.dataset_info("org/before").id == "org/before"
    assert owner.dataset_info("org/between").id == "org/after"
    owner.move_repo("org/after", "org/between", repo_type="dataset")
    assert owner.dataset_info("org/between").id == "org/between"
    assert owner.dataset_info("org/after").id == "org/between"


def test_an_old_name_reveals_nothing_of_a_private_repository(owner: HfApi, hub: Served) -> None:
    owner.create_repo("org/open")
    owner.move_repo("org/open", "org/closed")
    owner.update_repo_settings("org/closed", private=True)
    stranger = HfApi(endpoint=hub.url, token=hub.token("stranger", "none"))
    with pytest.raises(RepositoryNotFoundError):
        stranger.model_info("org/open")
    assert owner.model_info("org/open").id == "org/closed"
    reader = HfApi(endpoint=hub.url, token=hub.token("reader", "read"))
    with pytest.raises(HfHubHTTPError, match="right to write org/closed"):
        reader.create_commit("org/open", [CommitOperationAdd("x", b"x")], commit_message="x")
    owner.delete_repo("org/closed")
    with pytest.raises(RepositoryNotFoundError):
        owner.model_info("org/open")
