"""Loading is of one commit, verified to the byte, and what cannot be loaded is told in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, HfApi, constants
from huggingface_hub.utils import close_session, get_session

from hf_credit.cli.options import Prompted
from hf_credit.hub import retries
from hf_credit.hub.loading import TooLarge, fetch
from hf_credit.hub.publishing import publish
from hf_credit.hub.retries import HubError
from hf_credit.loading import load_policy, require_model
from local_hub.running import Served, serving

FILES = {"README.md": b"# Hi\n", "a/b.txt": b"text"}


@pytest.fixture
def where(hub: Served, tmp_path: Path) -> dict[str, Any]:
    return {"repo_type": "model", "endpoint": hub.url, "cache_dir": tmp_path / "cache"}


@pytest.fixture(scope="module")
def published(hub: Served) -> str:
    publish(FILES, "me/loaded", repo_type="model", endpoint=hub.url, token=hub.token())
    publish({"x": b"1"}, "me/secret", repo_type="model", endpoint=hub.url, token=hub.token(), private=True)
    return "me/loaded"


def test_a_branch_is_loaded_at_its_commit(hub: Served, published: str, where: dict[str, Any]) -> None:
    first = fetch(published, **where)
    api = HfApi(endpoint=hub.url, token=hub.token())
    api.create_commit(published, [CommitOperationAdd("README.md", b"# New\n")], commit_message="New")
    again = fetch(published, revision=first.commit, **where)
    assert again == first
    assert (again.folder / "README.md").read_bytes() == FILES["README.md"]
    assert fetch(published, **where).files["README.md"].read_bytes() == b"# New\n"
    only = fetch(published, revision=first.commit, allow=["a/*"], **where)
    assert list(only.files) == ["a/b.txt"]


def test_more_bytes_than_are_taken_are_refused_before_any_is_downloaded(published: str, where: dict[str, Any]) -> None:
    with pytest.raises(TooLarge, match=r"of me/loaded must have at most 3 bytes together, got 4; publish smaller"):
        fetch(published, allow=["a/*"], most_bytes=3, **where)
    assert not where["cache_dir"].exists()
    assert fetch(published, allow=["a/*"], most_bytes=4, **where).files["a/b.txt"].read_bytes() == b"text"


def test_a_damaged_cache_is_downloaded_again(published: str, where: dict[str, Any]) -> None:
    path = fetch(published, **where).files["a/b.txt"]
    path.resolve().write_bytes(b"tex!")
    assert fetch(published, **where).files["a/b.txt"].read_bytes() == b"text"


def test_bytes_that_the_commit_does_not_name_are_refused(hub: Served, where: dict[str, Any], tmp_path: Path) -> None:
    own = b"as it was published"
    publish({"x.txt": own}, "me/changed", repo_type="model", endpoint=hub.url, token=hub.token())
    for path in hub.folder.rglob("*"):
        if path.is_file() and path.stat().st_size == len(own) and path.read_bytes() == own:
            path.chmod(0o600)
            path.write_bytes(b"as it was falsified")
    with pytest.raises(HubError, match=r"other bytes for 'x.txt'; do not use it"):
        fetch("me/changed", **where)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"repo": "me/none"}, "there is no such repository, or it is private"),
        ({"repo": "me/secret"}, "there is no such repository, or it is private"),
        ({"repo": "me/loaded", "repo_type": "dataset"}, "there is no such repository"),
        ({"repo": "me/loaded", "revision": "v9"}, "there is no such revision"),
        ({"repo": "me/loaded", "revision": "0" * 40}, "there is no such revision"),
        ({"repo": "me/loaded", "allow": ["*.parquet"]}, r"must hold \*.parquet, got no such file"),
    ],
)
def test_what_cannot_be_loaded_is_told(
    asked: dict[str, Any], told: str, published: str, where: dict[str, Any]
) -> None:
    with pytest.raises((HubError, ValueError), match=told) as error:
        fetch(**{**where, **asked})
    assert "\n" not in str(error.value)


def test_a_token_that_may_only_read_publishes_nothing(hub: Served, published: str) -> None:
    token = hub.token("reader", "read")
    with pytest.raises(HubError, match=r"right to do this.*\(403\); pass one that may write") as error:
        publish({"x": b"1"}, published, repo_type="model", endpoint=hub.url, token=token)
    assert token not in str(error.value)


def test_a_repository_of_another_kind_is_not_published_beside(hub: Served, published: str) -> None:
    with pytest.raises(ValueError, match="must be free or a dataset, got a model"):
        publish({"x": b"1"}, published, repo_type="dataset", endpoint=hub.url, token=hub.token())


def test_what_others_put_there_is_refused_by_its_name(hub: Served, where: dict[str, Any]) -> None:
    api = HfApi(endpoint=hub.url, token=hub.token())
    api.create_repo("me/pickled")
    api.create_commit("me/pickled", [CommitOperationAdd("model.pkl", b"x")], commit_message="x")
    with pytest.raises(ValueError, match=r"must not run code when it is read, got 'model\.pkl'"):
        fetch("me/pickled", **where)


def test_a_hub_that_never_answered_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, where: dict[str, Any]) -> None:
    waits: list[float] = []
    monkeypatch.setattr(retries, "pause", waits.append)
    with pytest.raises(HubError, match="must be reachable, got ConnectError"):
        fetch("me/loaded", **{**where, "endpoint": "http://127.0.0.1:9"})
    assert waits == []


def test_a_hub_that_went_away_is_waited_for_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(retries, "pause", waits.append)
    with serving(tmp_path / "short-lived") as gone:
        publish(FILES, "me/gone", repo_type="model", endpoint=gone.url, token=gone.token())
    with pytest.raises(HubError, match="must be reachable, got ConnectError"):
        fetch("me/gone", **{**where, "endpoint": gone.url})
    assert len(waits) == retries.ATTEMPTS - 1
    said = [one.getMessage() for one in caplog.records if "trying again in" in one.getMessage()]
    assert len(said) == sum(seconds >= 1 for seconds in waits)
    assert said[-1].startswith("reading me/gone: the Hub must be reachable, got ConnectError")


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("out/base", "which the Hub does not have, or does not show without a token"),
        ("./out/base/policy", "which is no id on the Hub"),
        ("/out/base", "which is no id on the Hub"),
    ],
)
def test_a_model_that_is_nowhere_is_named_with_what_makes_one(
    hub: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str, reason: str
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    said = f"got '{model}', which is no folder, {reason}; correct the path, or make a policy there by hf-credit init"
    for load in (require_model, load_policy, Prompted().spec):
        with pytest.raises(ValueError, match=said):
            load(model)


def test_a_model_that_the_hub_has_or_that_was_downloaded_before_is_taken(
    hub: Served, published: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_model(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    publish({"config.json": b"{}"}, "me/model", repo_type="model", endpoint=hub.url, token=hub.token())
    with monkeypatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", hub.url)
        require_model("me/model")
    HfApi(endpoint=hub.url).hf_hub_download("me/model", "config.json", cache_dir=tmp_path / "cache")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    require_model("me/model")
    with pytest.raises(ValueError, match=r"and the Hub cannot be asked \(ConnectError\)"):
        require_model("me/loaded")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"and the Hub cannot be asked \(OfflineModeIsEnabled\)"):
        require_model("me/loaded")


def test_an_upload_whose_client_another_of_its_threads_closed_is_tried_again(hub: Served, impatient: None) -> None:
    """A thread that finds the Hub away closes the client that huggingface_hub shares."""
    attempts = 0

    def upload() -> int:
        nonlocal attempts
        attempts += 1
        client = get_session()
        if attempts == 1:
            close_session()
        try:
            return client.get(f"{hub.url}/api/models/me/none").status_code
        except RuntimeError as error:
            raise RuntimeError("Error while uploading 'a.bin' to the Hub.") from error

    assert retries.retried(upload, "uploading") == 401
    assert attempts == 2


def test_an_error_shows_the_control_characters_of_a_hub_by_their_codes() -> None:
    error = retries.explained(OSError("busy \x1b[2J\u202e"), "reading me/x")
    assert str(error) == r"reading me/x: OSError: busy \x1b[2J\u202e"
