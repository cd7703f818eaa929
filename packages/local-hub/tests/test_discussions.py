"""Discussions and pull requests, as a leaderboard needs them; results and ranks."""

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
    visitor.rename_discussion(REPO, num, "My results", **kind)

    shown = owner.get_discussion_details(REPO, num, **kind)
    assert (shown.author, shown.title, shown.status, shown.target_branch) == (
        "ada",
        "My results",
        "open",
        "refs/heads/main",
    )
    assert [event.type for event in shown.events] == ["comment", "commit", "comment", "title-change"]
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


# Results


RESULT = "- dataset: {{id: {benchmark}, task_id: main}}\n  value: {value}\n  notes: by hand\n"


def add_model(api: HfApi, name: str, value: object, card: str = "", create_pr: bool = False) -> None:
    api.create_repo(name, exist_ok=True)
    text = RESULT.format(benchmark="bench/board", value=value)
    files = [CommitOperationAdd(".eval_results/board.yaml", text.encode())]
    if card:
        files.append(CommitOperationAdd("README.md", card.encode()))
    api.create_commit(name, files, commit_message="State results", create_pr=create_pr)


def test_a_benchmark_ranks_the_results_of_models(owner: HfApi, hub: Served) -> None:
    owner.create_repo("bench/board", repo_type="dataset")
    with pytest.raises(HfHubHTTPError, match="no leaderboard"):
        owner.get_dataset_leaderboard("bench/board")
    tasks = b"name: Board\ntasks:\n- id: main\n"
    owner.create_commit(
        "bench/board", [CommitOperationAdd("eval.yaml", tasks)], commit_message="x", repo_type="dataset"
    )
    add_model(owner, "bench/low", 0.25)
    add_model(owner, "bench/high", 0.75)
    add_model(owner, "bench/derived", 0.9, card="---\nbase_model: bench/high\n---\n")
    add_model(owner, "bench/broken", ".nan")
    owner.create_repo("bench/proposed")
    add_model(owner, "bench/proposed", 0.5, create_pr=True)
    owner.create_repo("bench/hidden", private=True)
    add_model(owner, "bench/hidden", 1.0)

    stranger = HfApi(endpoint=hub.url, token=False)
    ranked = stranger.get_dataset_leaderboard("bench/board")
    assert [(one.rank, one.model_id, one.value, one.pull_request) for one in ranked] == [
        (1, "bench/high", 0.75, None),
        (2, "bench/proposed", 0.5, 1),
        (3, "bench/low", 0.25, None),
    ]
    assert not any(one.verified for one in ranked)
    everyone = stranger.get_dataset_leaderboard("bench/board", base_model_only=False)
    assert everyone[0].model_id == "bench/derived"


def test_a_model_lists_its_results_and_those_that_cannot_be_read(owner: HfApi) -> None:
    add_model(owner, "bench/told", 0.5)
    bomb = b"a: &a [1,1,1,1,1,1,1,1,1,1]\n" + b"".join(
        b"%c: &%c [%s]\n" % (letter, letter, b",".join([b"*%c" % (letter - 1)] * 10)) for letter in range(98, 108)
    )
    files = [
        CommitOperationAdd(".eval_results/bomb.yaml", bomb),
        CommitOperationAdd(".eval_results/text.yaml", b"- dataset: nothing\n"),
    ]
    owner.create_commit("bench/told", files, commit_message="Break")
    [result] = owner.model_info("bench/told", expand=["evalResults"]).eval_results
    assert (result.dataset_id, result.task_id, result.value) == ("bench/board", "main", 0.5)
