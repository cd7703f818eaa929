"""Publishing is all or nothing, private until it is verified, and once only, whatever fails on the way."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hub_faults import Fault, Faults
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.utils import close_session
from safetensors.torch import save_file

from hf_credit import http_guard
from hf_credit.checkpoints import write_manifest
from hf_credit.http_guard import httpx
from hf_credit.hub import publishing, retries
from hf_credit.hub.checkpoints import publish_checkpoint
from hf_credit.hub.environments import publish_environment
from hf_credit.hub.episode_sets import EpisodeSet, publish_episode_folder, save_episodes
from hf_credit.hub.loading import fetch
from hf_credit.hub.metrics import publish_metric
from hf_credit.hub.publishing import TRAILER, publish
from hf_credit.hub.retries import Conflict, HubError
from hf_credit.hub.task_sets import publish_tasks
from hf_credit.policies.micro import tokenizer_of
from hf_credit.policies.scripted import play
from hf_credit.rollouts import Chat, RolloutRequest
from hf_credit.tasks import TaskSpec
from local_hub.limits import Limits
from local_hub.running import Served, serving

FILES = {"README.md": b"---\ntags: [x]\n---\n# Hi\n", "a/big.txt": b"0123456789" * 1000}
ONLINE = {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
DATA = {**FILES, "weights.safetensors": (8).to_bytes(8, "little") + b"{}      "}


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were to be waited, which nobody does here."""
    told: list[float] = []
    monkeypatch.setattr(retries, "pause", told.append)
    patient = SimpleNamespace(**{**vars(time), "sleep": told.append})
    monkeypatch.setattr("huggingface_hub.utils._http.time", patient)
    monkeypatch.setattr("huggingface_hub.file_download.time", patient)
    return told


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`failing(*rules)`: a Hub of its own with these failures, its client, and where to publish."""
    with contextlib.ExitStack() as stack:

        def start(*rules: Fault, seed: int = 0, limits: Limits | None = None) -> tuple[HfApi, dict[str, str], Faults]:
            faults = Faults(rules, seed)
            served = stack.enter_context(serving(tmp_path / f"hub{seed}", hooks=faults, limits=limits))
            where = {"endpoint": served.url, "token": served.token()}
            return HfApi(**where), where, faults

        yield start


def commits_of(api: HfApi, repo: str, repo_type: str = "model") -> list[str]:
    """The descriptions of what was published there, newest first."""
    found = api.list_repo_commits(repo, repo_type=repo_type)
    return [one.message for one in found if TRAILER in one.message]


def test_what_is_published_is_one_public_commit_with_equal_bytes(hub: Served, tmp_path: Path) -> None:
    where = {"endpoint": hub.url, "token": hub.token()}
    done = publish(DATA, "me/first", repo_type="model", **where)
    api = HfApi(**where)
    info = api.model_info("me/first")
    assert (info.sha, info.private, done.private) == (done.commit, False, False)
    assert len(commits_of(api, "me/first")) == 1
    found = fetch("me/first", repo_type="model", endpoint=hub.url, cache_dir=tmp_path)
    assert found.commit == done.commit
    assert {name: path.read_bytes() for name, path in found.files.items() if name in DATA} == DATA


def test_the_same_again_makes_no_commit(hub: Served) -> None:
    where: dict[str, Any] = {"endpoint": hub.url, "token": hub.token(), "repo_type": "dataset"}
    first = publish(FILES, "me/twice", **where)
    assert publish(FILES, "me/twice", **where).commit == first.commit


def test_a_commit_is_named_once_it_is_verified_and_a_name_is_not_moved(failing: Callable[..., Any]) -> None:
    api, where, faults = failing(Fault(effect="status", path="/resolve/", status=404))
    with pytest.raises(HubError, match="me/named"):
        publish(FILES, "me/named", repo_type="model", tag="v1", **where)
    assert api.list_repo_refs("me/named").tags == []
    faults.rules[:] = [Fault(effect="lose_reply", path="/tag/", nth=1)]
    first = publish(FILES, "me/named", repo_type="model", tag="v1", **where)
    publish(FILES, "me/named", repo_type="model", tag="v1", **where)
    assert api.model_info("me/named", revision="v1").sha == first.commit
    with pytest.raises(Conflict, match=rf"must be free, got 'v1', which is at {first.commit}; choose a new one"):
        publish({"README.md": b"# New\n"}, "me/named", repo_type="model", tag="v1", **where)
    assert api.model_info("me/named").sha == api.model_info("me/named", revision="v1").sha == first.commit
    with pytest.raises(ValueError, match="got 'v2' for a pull request; tag it after the merge"):
        publish(FILES, "me/named", repo_type="model", tag="v2", pr=True, **where)


def test_a_new_repository_is_private_until_what_it_holds_was_compared(failing: Callable[..., Any]) -> None:
    api, where, faults = failing(Fault(effect="status", path="/resolve/", status=404))
    with pytest.raises(HubError, match="me/x"):
        publish(FILES, "me/x", repo_type="model", **where)
    assert api.model_info("me/x").private
    faults.rules.clear()
    done = publish(FILES, "me/x", repo_type="model", **where)  # takes up what is there
    assert (api.model_info("me/x").private, done.commit) == (False, api.model_info("me/x").sha)
    assert len(commits_of(api, "me/x")) == 1


def test_other_bytes_than_were_sent_are_refused(
    failing: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A Hub of its own: objects are stored once, so what is spoiled here would be spoiled for other tests.
    api, where, _ = failing()
    compare = publishing.Repository.compare

    def spoiled(self: Any, contents: Any, commit: str) -> None:
        for file in tmp_path.rglob("*"):
            if file.is_file() and file.read_bytes() == FILES["a/big.txt"]:
                file.chmod(0o600)
                file.write_bytes(FILES["a/big.txt"].replace(b"0", b"1"))
        compare(self, contents, commit)

    monkeypatch.setattr(publishing.Repository, "compare", spoiled)
    with pytest.raises(HubError, match=r"return the bytes that were sent, got others for 'a/big.txt'"):
        publish(FILES, "me/spoiled", repo_type="model", **where)
    assert api.model_info("me/spoiled").private


def test_a_commit_whose_answer_is_lost_is_found_and_not_made_again(failing: Callable[..., Any]) -> None:
    api, where, _ = failing(Fault(effect="lose_reply", path="/commit/", nth=1))
    done = publish(FILES, "me/lost", repo_type="dataset", **where)
    assert len(commits_of(api, "me/lost", "dataset")) == 1
    assert done.commit == api.dataset_info("me/lost").sha


def test_a_pull_request_whose_answer_is_lost_is_found_and_not_opened_again(failing: Callable[..., Any]) -> None:
    api, where, faults = failing()
    publish(FILES, "me/asked", repo_type="dataset", **where)
    faults.rules.append(Fault(effect="lose_reply", path="/commit/", nth=1))
    done = publish({"new.txt": b"new"}, "me/asked", repo_type="dataset", pr=True, **where)
    opened = list(api.get_repo_discussions("me/asked", repo_type="dataset"))
    assert len(opened) == 1
    assert done.pull_request is not None
    assert done.pull_request.endswith(f"/discussions/{opened[0].num}")
    again = publish({"new.txt": b"new"}, "me/asked", repo_type="dataset", pr=True, **where)
    assert (again.commit, again.pull_request) == (done.commit, opened[0].url)


def test_of_two_publishers_one_wins_and_the_other_is_told(
    failing: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, where, _ = failing(Fault(effect="status", path="/commit/", nth=2))
    publish(FILES, "me/both", repo_type="model", **where)

    def other_first(seconds: float) -> None:
        added = CommitOperationAdd("README.md", b"# Theirs\n")
        api.create_commit("me/both", [added], commit_message="Theirs")

    monkeypatch.setattr(retries, "pause", other_first)
    with pytest.raises(Conflict, match="must not change during a publication"):
        publish({"README.md": b"# Ours\n"}, "me/both", repo_type="model", **where)
    assert api.list_repo_commits("me/both")[0].title == "Theirs"


def test_a_commit_that_is_made_after_it_was_given_up_is_not_made_twice(
    failing: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, where, faults = failing()
    wrap, waiting, given_up, answered = faults.wrap, threading.Event(), threading.Event(), threading.Event()
    statuses: list[int] = []

    async def late(app: Any, scope: Any, receive: Any, send: Any) -> None:
        """Holds the first commit, of which all has arrived, until its client has gone."""
        if "/commit/" not in scope["path"] or waiting.is_set():
            await wrap(app, scope, receive, send)
            return
        waiting.set()
        parts = [await receive()]
        while parts[-1]["more_body"]:
            parts.append(await receive())
        rest = iter(parts)

        async def arrived() -> Any:
            return next(rest)

        async def told(message: Any) -> None:
            statuses.extend([message["status"]] if "status" in message else [])
            await send(message)

        while not given_up.is_set():
            await asyncio.sleep(0.01)
        await wrap(app, scope, arrived, told)
        answered.set()

    monkeypatch.setattr(faults, "wrap", late)
    close_session()  # the next client has the short limit
    monkeypatch.setattr(http_guard, "TIMEOUT", httpx.Timeout(1.5))
    try:
        done = publish(FILES, "me/late", repo_type="model", **where)
    finally:
        given_up.set()
    assert answered.wait(60)
    assert statuses == [412]  # its parent is no longer the newest
    close_session()
    assert len(commits_of(api, "me/late")) == 1
    assert api.model_info("me/late").sha == done.commit


def test_a_full_disk_is_told_and_what_was_there_is_served(failing: Callable[..., Any], tmp_path: Path) -> None:
    api, where, faults = failing()
    first = publish(FILES, "me/full", repo_type="model", **where)
    faults.rules.append(Fault(effect="disk_full", point="object-write"))
    with pytest.raises(HubError, match=r"disk is full.*free space and run it again"):
        publish({"README.md": b"# New\n"}, "me/full", repo_type="model", **where)
    assert fetch("me/full", repo_type="model", cache_dir=tmp_path / "cache", **where).commit == first.commit
    faults.rules.clear()
    publish({"README.md": b"# New\n"}, "me/full", repo_type="model", **where)
    assert len(commits_of(api, "me/full")) == 2


def test_a_busy_hub_is_waited_for_as_long_as_it_says(failing: Callable[..., Any], waits: list[float]) -> None:
    _, where, _ = failing(Fault(effect="status", path="/api/", status=429, headers={"RateLimit": '"api";r=0;t=77'}))
    with pytest.raises(HubError, match=r"answered .*429"):
        publish(FILES, "me/busy", repo_type="model", **where)
    assert len(waits) == retries.ATTEMPTS - 1
    assert all(seconds == 77 for seconds in waits)


def test_what_was_published_to_stay_private_is_not_made_public_by_a_later_publication(
    failing: Callable[..., Any],
) -> None:
    api, where, _ = failing()
    publish(FILES, "me/secret", repo_type="model", private=True, **where)
    for again in (FILES, {"README.md": b"# New\n"}):
        done = publish(again, "me/secret", repo_type="model", **where)
        assert (api.model_info("me/secret").private, done.private) == (True, True)


def test_a_repository_that_its_owner_made_private_stays_so_when_the_same_is_published_again(
    failing: Callable[..., Any],
) -> None:
    api, where, _ = failing()
    publish(FILES, "me/hidden", repo_type="model", **where)
    assert [one.name for one in api.list_repo_refs("me/hidden").branches] == ["main"]
    api.update_repo_settings("me/hidden", private=True)
    done = publish(FILES, "me/hidden", repo_type="model", **where)
    assert (api.model_info("me/hidden").private, done.private) == (True, True)


def test_a_repository_with_a_branch_that_is_called_unfinished_keeps_it_and_its_visibility(
    failing: Callable[..., Any],
) -> None:
    api, where, _ = failing()
    publish(FILES, "me/work", repo_type="model", private=True, **where)
    api.create_branch("me/work", branch="unfinished")
    done = publish({"README.md": b"# New\n"}, "me/work", repo_type="model", **where)
    assert (api.model_info("me/work").private, done.private) == (True, True)
    assert "unfinished" in [one.name for one in api.list_repo_refs("me/work").branches]
    asked = publish({"README.md": b"# Newer\n"}, "me/work", repo_type="model", pr=True, **where)
    assert (asked.private, bool(asked.pull_request)) == (True, True)


def test_a_change_of_an_older_commit_than_the_newest_is_refused(failing: Callable[..., Any]) -> None:
    api, where, _ = failing()
    first = publish(FILES, "me/changed", repo_type="model", **where)
    second = publish({"README.md": b"# Two\n"}, "me/changed", repo_type="model", parent=first.commit, **where)
    with pytest.raises(Conflict, match=f"got {second.commit} instead of {first.commit} from somebody else"):
        publish({"README.md": b"# Three\n"}, "me/changed", repo_type="model", parent=first.commit, **where)
    assert api.model_info("me/changed").sha == second.commit


def test_a_publisher_that_is_killed_leaves_nothing_public(failing: Callable[..., Any]) -> None:
    api, where, faults = failing(Fault(effect="delay", path="/resolve/", seconds=4))
    script = f"""
from hf_credit.hub import publish
publish({FILES!r}, "me/killed", repo_type="model", endpoint={where["endpoint"]!r}, token={where["token"]!r})
"""
    with subprocess.Popen([sys.executable, "-c", script], env={**os.environ, **ONLINE}) as process:
        while process.poll() is None and not (
            api.repo_exists("me/killed") and len(api.list_repo_commits("me/killed")) > 1
        ):
            time.sleep(0.05)
        process.kill()
    assert api.model_info("me/killed").private
    faults.rules.clear()
    publish(FILES, "me/killed", repo_type="model", **where)
    assert not api.model_info("me/killed").private
    assert len(commits_of(api, "me/killed")) == 1


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[..., Any]]:
    """How each kind of artifact is published, by its repository."""
    folder = tmp_path_factory.mktemp("artifacts")
    spec = TaskSpec(task="evidence", task_options={})
    interaction = spec.build()
    starts = tuple(RolloutRequest[Any](task=row, seed=row["seed"]) for row in interaction.tasks("train", 2))
    script = interaction.scripted_player(0.5)
    assert script is not None
    chat = Chat(tokenizer_of([string.printable]))
    episodes = tuple(play(interaction, chat, script, start) for start in starts)
    save_episodes(folder / "episodes", EpisodeSet(episodes=episodes, interaction=interaction, starts=starts))
    checkpoint = folder / "run" / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    save_file({"weight": torch.arange(500.0)}, checkpoint / "model.safetensors")
    torch.save({"state": torch.arange(500.0)}, checkpoint / "optimizer.pt")
    write_manifest(checkpoint, {})
    return {
        "me/tasks": functools.partial(publish_tasks, spec, train=3, held_out=2),
        "me/episodes": functools.partial(publish_episode_folder, folder / "episodes"),
        "me/run": functools.partial(publish_checkpoint, folder / "run"),
        "me/pass_at_k": functools.partial(publish_metric, "pass_at_k"),
        "me/evidence": functools.partial(publish_environment, "evidence"),
    }


def test_with_a_third_of_all_requests_failing_each_artifact_is_one_commit_with_equal_bytes(
    fault_seed: int, failing: Callable[..., Any], artifacts: dict[str, Callable[..., Any]], tmp_path: Path
) -> None:
    rules = [
        Fault(effect="status", probability=0.1),
        Fault(effect="cut", probability=0.1),
        Fault(effect="lose_reply", method="POST|PUT", probability=0.15),
        Fault(effect="cut_after", bytes=100, probability=0.1),
    ]
    api, where, faults = failing(*rules, seed=fault_seed, limits=Limits(lfs_bytes=1000))
    for repo, publish_it in artifacts.items():
        done = publish_it(repo=repo, **where)
        found = fetch(repo, repo_type=done.repo_type, cache_dir=tmp_path / "cache", **where)
        assert (found.commit, done.private) == (done.commit, False)
        assert set(done.files) <= set(found.files)  # `fetch` compared what they hold
    happening, faults.rules = faults.rules, []
    assert happening
    kinds = {"me/tasks": "dataset", "me/episodes": "dataset", "me/run": "model", "me/evidence": "space"}
    for repo, repo_type in kinds.items():
        assert len(commits_of(api, repo, repo_type)) == 1
        assert api.repo_info(repo, repo_type=repo_type).private is False
