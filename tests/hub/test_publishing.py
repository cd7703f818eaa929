"""Publishing is all or nothing, private until it is verified, and once only, whatever fails on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from hf_credit.hub import publishing, retries
from hf_credit.hub.loading import fetch
from hf_credit.hub.publishing import TRAILER, publish
from hf_credit.hub.server import Fault, Faults, Served, serving

FILES = {"README.md": b"---\ntags: [x]\n---\n# Hi\n", "a/big.txt": b"0123456789" * 1000}
DATA = {**FILES, "weights.safetensors": (8).to_bytes(8, "little") + b"{}      "}


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were to be waited, which nobody does here."""
    told: list[float] = []
    monkeypatch.setattr(retries, "pause", told.append)
    monkeypatch.setattr(publishing, "pause", told.append)
    for module in ("huggingface_hub.utils._http", "huggingface_hub.file_download"):
        monkeypatch.setattr(f"{module}.time.sleep", lambda seconds: None)
    return told


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`failing(*rules)`: a Hub of its own with these failures, its client and where to publish."""
    with contextlib.ExitStack() as stack:

        def start(*rules: Fault, seed: int = 0) -> tuple[HfApi, dict[str, str], Faults]:
            faults = Faults(rules, seed)
            served = stack.enter_context(serving(tmp_path / f"hub{seed}", faults=faults))
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
