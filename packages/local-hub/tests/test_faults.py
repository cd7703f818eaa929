"""After any failure at any time a repository is at its old or its new head, and every byte is right."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
from hub_faults import Fault, Faults, serving_in_process
from hub_fixtures import httpx
from huggingface_hub import CommitOperationAdd, HfApi, constants
from huggingface_hub.errors import HfHubHTTPError

from local_hub.hooks import POINTS
from local_hub.running import Served, open_hub, serving
from local_hub.upkeep import check

REPO = "org/faulty"
FILES = {"README.md": b"# Faulty\n", "weights.safetensors": bytes(range(256)) * 300, "more.bin": b"\1" * 5000}
FAILURES = (HfHubHTTPError, httpx.HTTPError, RuntimeError, OSError)

pytestmark = pytest.mark.usefixtures("impatient")


def additions() -> list[CommitOperationAdd]:
    return [CommitOperationAdd(path, content) for path, content in FILES.items()]


def api_of(hub: Served) -> HfApi:
    return HfApi(endpoint=hub.url, token=hub.token())


def insist(action: object, most: int = 40) -> object:
    """Repeats an action until it succeeds; returns its result."""
    for _ in range(most - 1):
        try:
            return action()  # type: ignore[operator]
        except FAILURES:
            continue
    return action()  # type: ignore[operator]


def problems(folder: Path) -> list[str]:
    with open_hub(folder) as hub:
        return list(check(hub))


def is_published(api: HfApi, head: str) -> bool:
    return api.model_info(REPO).sha != head


def publish(api: HfApi, head: str) -> None:
    """Commits once on top of `head`, even if answers are lost: checks before each retry."""

    def once() -> None:
        if not is_published(api, head):
            api.create_commit(REPO, additions(), commit_message="Publish", parent_commit=head)

    insist(once)


def assert_holds(api: HfApi, folder: Path, commits: int = 2) -> None:
    assert len(api.list_repo_commits(REPO)) == commits
    for path, content in FILES.items():
        local = api.hf_hub_download(REPO, path, cache_dir=folder / "cache", force_download=True)
        assert Path(local).read_bytes() == content
    assert problems(folder) == []


def test_a_commit_survives_thirty_percent_of_failing_requests(fault_seed: int, tmp_path: Path) -> None:
    with serving(tmp_path) as hub:
        head = api_of(hub).create_repo(REPO) and api_of(hub).model_info(REPO).sha
    rules = [Fault(effect="status", probability=0.08), Fault(effect="status", status=500, probability=0.08)]
    rules += [Fault(effect="cut", probability=0.08), Fault(effect="lose_reply", probability=0.08)]
    rules += [Fault(effect="cut_after", bytes=1000, path="/resolve/", probability=0.3)]
    with serving(tmp_path, hooks=Faults(rules, fault_seed)) as hub:
        api = api_of(hub)
        publish(api, head)
        for path, content in FILES.items():
            local = insist(lambda path=path: api.hf_hub_download(REPO, path, cache_dir=tmp_path / "faulty"))
            assert Path(str(local)).read_bytes() == content
    with serving(tmp_path) as hub:
        assert_holds(api_of(hub), tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder that was served, with the repository in it, and the repository's head."""
    folder = tmp_path_factory.mktemp("hub")
    with serving(folder) as hub:
        api_of(hub).create_repo(REPO)
        return folder, api_of(hub).model_info(REPO).sha


@pytest.fixture
def repo(served: tuple[Path, str], tmp_path: Path) -> tuple[Path, str]:
    """A copy of that folder, and the head."""
    folder, head = served
    return shutil.copytree(folder, tmp_path / "hub"), head


def test_the_lost_reply_of_a_commit_leaves_one_commit(repo: tuple[Path, str]) -> None:
    folder, head = repo
    with serving(folder, hooks=Faults([Fault(effect="lose_reply", path="/commit/")])) as hub:
        with pytest.raises(httpx.RemoteProtocolError):
            api_of(hub).create_commit(REPO, additions(), commit_message="Publish", parent_commit=head)
        api = api_of(hub)
        # Posting it blindly again is refused.
        with pytest.raises(httpx.RemoteProtocolError):
            api.create_commit(REPO, [CommitOperationAdd("z", b"z")], commit_message="Again", parent_commit=head)
        assert_holds(api, folder)


@pytest.mark.parametrize("path", ["/commit/", "^/lfs/"])
@pytest.mark.parametrize("point", ["request", *POINTS, "reply"])
def test_a_server_killed_at_any_point_restarts_at_the_old_or_the_new_head(
    repo: tuple[Path, str], point: str, path: str
) -> None:
    folder, head = repo
    fault = Fault(effect="kill", point=point, path=path, method="POST|PUT", nth=1)
    with serving_in_process(folder, [fault]) as (hub, ended):
        with pytest.raises(FAILURES):
            api_of(hub).create_commit(REPO, additions(), commit_message="Publish", parent_commit=head)
        assert ended() == -signal.SIGKILL

    assert problems(folder) == []
    with serving(folder) as hub:
        api = api_of(hub)
        there = is_published(api, head)
        assert there == (path == "/commit/" and point in ("transaction-committed", "reply"))
        # Large files that arrived before are not sent again: here every upload of one fails.
        sent = Faults([Fault(effect="status", path="^/lfs/", status=400)] if path == "/commit/" else [])
    with serving(folder, hooks=sent) as hub:
        publish(api_of(hub), head)
        assert_holds(api_of(hub), folder)
        assert list((folder / "tmp").iterdir()) == []


def test_without_room_no_repository_is_made(tmp_path: Path) -> None:
    rules = [Fault(effect="disk_full", point="transaction-commit", path="/repos/create")]
    with serving(tmp_path, hooks=Faults(rules)) as hub:
        with pytest.raises(HfHubHTTPError, match=r"(?s)507.*the disk of this Hub is full"):
            api_of(hub).create_repo(REPO)
        assert not api_of(hub).repo_exists(REPO)


@pytest.mark.parametrize("path", ["/commit/", "^/lfs/"])
@pytest.mark.parametrize("point", ["object-write", "object-rename", "transaction-commit"])
def test_a_full_disk_is_an_error_and_the_old_head_still_serves(repo: tuple[Path, str], point: str, path: str) -> None:
    folder, head = repo
    faults = Faults([Fault(effect="disk_full", point=point, path=path)])
    with serving(folder, hooks=faults) as hub:
        api = api_of(hub)
        with pytest.raises(FAILURES) as failed:
            api.create_commit(REPO, additions(), commit_message="Publish", parent_commit=head)
        assert "507" in f"{failed.value} {failed.value.__cause__}"
        assert api.model_info(REPO).sha == head
        assert list((folder / "tmp").iterdir()) == []
        faults.rules.clear()
        publish(api, head)
        assert_holds(api, folder)


def test_of_two_commits_on_one_head_one_wins_and_one_is_refused(repo: tuple[Path, str]) -> None:
    folder, head = repo
    with serving(folder) as hub:
        outcomes: list[int] = []
        gate = threading.Barrier(2)

        def commit(name: str) -> None:
            api = HfApi(endpoint=hub.url, token=hub.token(name))
            files = [CommitOperationAdd(f"{name}.txt", os.urandom(8))]
            gate.wait()
            try:
                api.create_commit(REPO, files, commit_message=name, parent_commit=head)
                outcomes.append(200)
            except HfHubHTTPError as error:
                outcomes.append(error.response.status_code)

        threads = [threading.Thread(target=commit, args=(name,)) for name in ("ada", "bob")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == [200, 412]
        assert len(api_of(hub).list_repo_commits(REPO)) == 2


def test_a_download_that_is_cut_goes_on_where_it_was(repo: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, head = repo
    monkeypatch.setattr(
        constants, "DOWNLOAD_CHUNK_SIZE", 1000
    )  # what the client keeps of a cut reply, in whole pieces
    rules = [Fault(effect="cut_after", bytes=20_000, path="/resolve/", method="GET")]
    with serving(folder, hooks=Faults(rules)) as hub:
        publish(api_of(hub), head)
        # Each of the replies brings 20,000 of 76,800 bytes, so only ranges come to an end.
        local = api_of(hub).hf_hub_download(REPO, "weights.safetensors", cache_dir=folder / "cache")
        assert Path(local).read_bytes() == FILES["weights.safetensors"]
