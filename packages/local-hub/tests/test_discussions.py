"""Discussions and pull requests, as a leaderboard needs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError

from local_hub.running import Served, serving

REPO = "bench/results"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Served]:
    """A Hub for each test, since merges in one would affect another."""
    with serving(tmp_path) as served:
        yield served


@pytest.fixture
def owner(hub: Served) -> HfApi:
    api = HfApi(endpoint=hub.url, token=hub.token("bench"))
    api.create_repo(REPO, repo_type="dataset")
    files = [CommitOperationAdd(name, f"{name}\n".encode()) for name in ("a.txt", "b.txt")]
    api.create_commit(REPO, files, commit_message="Begin", repo_type="dataset")
    return api


@pytest.fixture
def visitor(hub: Served, owner: HfApi) -> HfApi:
    return HfApi(endpoint=hub.url, token=hub.token("ada", "read", {"ada/*": "write"}))


def propose(api: HfApi, **files: str | None) -> int:
    operations = [
        CommitOperationDelete(f"{name}.txt") if text is None else CommitOperationAdd(f"{name}.txt", text.encode())
        for name, text in files.items()
    ]
    made = api.create_commit(REPO, operations, commit_message="Propose", repo_type="dataset", create_pr=True)
    assert made.pr_num is not None
    return made.pr_num


def test_a_proposal_is_shown_talked_about_and_merged(owner: HfApi, visitor: HfApi) -> None:
    num = propose(visitor, a="other\n", c="new\n", b=None)
    kind = {"repo_type": "dataset"}
    assert visitor.comment_discussion(REPO, num, "Please look.", **kind).content == "Please look."

    shown = owner.get_discussion_details(REPO, num, **kind)
    assert (shown.author, shown.title, shown.status, shown.target_branch) == (
        "ada",
        "Propose",
        "open",
        "refs/heads/main",
    )
    assert [event.type for event in shown.events] == ["comment", "commit", "comment"]
    assert shown.conflicting_files == []

    owner.merge_pull_request(REPO, num, comment="Thank you.", **kind)
    merged = owner.get_discussion_details(REPO, num, **kind)
    assert merged.status == "merged"
    assert merged.merge_commit_oid == owner.dataset_info(REPO).sha
    assert sorted(owner.list_repo_files(REPO, **kind)) == [".gitattributes", "a.txt", "c.txt"]
    assert owner.list_repo_commits(REPO, **kind)[0].authors == ["ada"]
    with pytest.raises(HfHubHTTPError, match="403"):
        owner.merge_pull_request(REPO, num, **kind)


def test_a_proposal_is_closed_with_a_reason(owner: HfApi, visitor: HfApi) -> None:
    num = propose(visitor, d="1\n")
    owner.change_discussion_status(REPO, num, "closed", comment="Seeds are missing.", repo_type="dataset")
    shown = visitor.get_discussion_details(REPO, num, repo_type="dataset")
    assert shown.status == "closed"
    assert shown.events[-2].content == "Seeds are missing."
    with pytest.raises(HfHubHTTPError, match="403"):
        owner.merge_pull_request(REPO, num, repo_type="dataset")


def test_a_proposal_against_what_main_changed_since_conflicts(owner: HfApi, visitor: HfApi) -> None:
    num = propose(visitor, a="theirs\n", e="fine\n")
    same = [CommitOperationAdd("a.txt", b"ours\n")]
    owner.create_commit(REPO, same, commit_message="Change a", repo_type="dataset")
    shown = owner.get_discussion_details(REPO, num, repo_type="dataset")
    assert shown.conflicting_files == ["a.txt"]
    with pytest.raises(HfHubHTTPError, match=r"(?s)409.*a\.txt"):
        owner.merge_pull_request(REPO, num, repo_type="dataset")
    assert not owner.file_exists(REPO, "e.txt", repo_type="dataset")


def test_proposals_upon_different_files_merge_one_after_another(owner: HfApi, visitor: HfApi) -> None:
    nums = [propose(visitor, f="f\n"), propose(visitor, g="g\n")]
    for num in nums:
        owner.merge_pull_request(REPO, num, repo_type="dataset")
    assert {"f.txt", "g.txt"} <= set(owner.list_repo_files(REPO, repo_type="dataset"))


def test_discussions_are_listed_by_kind_status_and_author(owner: HfApi, visitor: HfApi) -> None:
    asked = visitor.create_discussion(REPO, "How is this scored?", repo_type="dataset")
    draft = visitor.create_pull_request(REPO, "Draft of mine", repo_type="dataset")
    assert (asked.status, draft.status) == ("open", "draft")
    options = {"repo_type": "dataset", "discussion_type": "discussion"}
    assert [one.num for one in owner.get_repo_discussions(REPO, **options)] == [asked.num]
    closed = owner.get_repo_discussions(REPO, repo_type="dataset", discussion_status="closed")
    assert asked.num not in {one.num for one in closed}
    assert list(owner.get_repo_discussions(REPO, repo_type="dataset", author="nobody")) == []
    with pytest.raises(HfHubHTTPError, match="only a pull request"):
        owner.merge_pull_request(REPO, asked.num, repo_type="dataset")
