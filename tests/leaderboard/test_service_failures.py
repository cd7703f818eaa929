"""No pull request stops the verifier: whatever its files make fail, it is closed, and the next one is verified."""

from __future__ import annotations

import dataclasses
import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hub_faults import Fault, Faults
from huggingface_hub import HfApi

from hf_credit.hub import retries
from hf_credit.hub.loading import TooLarge
from hf_credit.hub.retries import HubError
from hf_credit.hub.safety import MOST_FILES
from hf_credit_leaderboard import playing, service, sources, verification
from hf_credit_leaderboard.confined import Limits
from hf_credit_leaderboard.entries import Checkpoint
from hf_credit_leaderboard.records import REPLAYED, VERIFIED
from hf_credit_leaderboard.service import Ruling
from hf_credit_leaderboard.submission import Submission, packed
from local_hub.running import Served, serving

from .conftest import RESULTS, Board
from .test_service import World, world_on


@pytest.fixture(scope="module")
def world(hub: Served, board: Board, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The season of the relay. Each test lists policies of its own."""
    return world_on(hub, board, tmp_path_factory.mktemp("cache"))


def copied(world: World) -> Submission:
    """The entry of the good policy's copy."""
    return packed(
        *world.entry("good", checkpoints=(Checkpoint(repo="me/copy", commit=world.commits["copy"], seed=0),))
    )


def refused_and_listed(world: World, closed: list[int], policy: str, **options: Any) -> list[Ruling]:
    """The verdicts on requests that are closed, after a run in which a policy's after them was verified."""
    honest = packed(*world.entry(policy))
    number = world.send(honest)
    *refused, listed = world.verifier(**options).rulings()
    assert [(one.number, one.listed) for one in refused] == [(one, False) for one in closed]
    assert {world.discussion(one).status for one in closed} == {"closed"}
    assert (listed.number, listed.listed) == (number, True)
    assert world.verifier().results().row(honest.id).badge == VERIFIED
    assert list(world.verifier().rulings()) == []
    return refused


def test_a_season_that_is_full_refuses_an_entry_before_it_is_played(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One more, with its record, would be more files than anybody's client takes.
    assert 2 * sources.MOST_LISTED == MOST_FILES
    monkeypatch.setattr(service, "MOST_LISTED", 0)
    number = world.send(packed(*world.entry("poor", name="too late")))
    ruling = world.verifier(play=lambda *_: {}).handle(number)
    assert ruling.reason == "a season may list at most 0 entries, got one more; submit to the next season."
    assert world.discussion(number).status == "closed"


def test_a_reason_that_is_published_names_no_folder_of_the_verifier(world: World, tmp_path: Path) -> None:
    def play(*_: Any) -> dict[str, Any]:
        raise RuntimeError(f"cannot read '{tmp_path / 'blobs' / 'ab'}'")

    number = world.send(copied(world))
    ruling = world.verifier(play=play).handle(number)
    told = ruling.reason + "".join(str(vars(event)) for event in world.discussion(number).events)
    assert "cannot read 'ab'" in told
    assert str(tmp_path.parent) not in told


def test_neither_a_reason_nor_the_log_has_control_characters_of_strangers(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def play(*_: Any) -> dict[str, Any]:
        raise AssertionError("the template says \x1b[2J\u202e")

    number = world.send(copied(world))
    ruling = world.verifier(play=play).handle(number)
    events = [getattr(event, "content", "") for event in world.discussion(number).events]
    for told in (ruling.reason, "".join(events), caplog.text):
        assert r"the template says \x1b[2J\u202e" in told
        assert "\x1b" not in told


def test_a_name_that_is_a_pattern_closes_its_own_request_alone(world: World) -> None:
    listed = packed(*world.entry("poor"))
    assert world.verifier().handle(world.send(listed)).listed
    pattern = f"[{listed.id[0]}]{listed.id[1:]}"
    (refused,) = refused_and_listed(world, [world.opened(b"{}", b"x", name=pattern)], "good")
    assert f"must be 32 hexadecimal digits, got '{pattern}'" in refused.reason


def test_whatever_fails_closes_its_own_request_alone_and_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def play(request: Any, readable: Any, limits: Any) -> dict[str, Any]:
        return {} if world.commits["copy"] in str(readable) else playing.answer(request)

    number = world.send(copied(world))
    (refused,) = refused_and_listed(world, [number], "other", play=play)
    assert refused.reason == "the check of an entry must not fail, got KeyError: 'episodes'; correct its files."
    assert f"could not check pull request {number}" in caplog.text
    assert "Traceback" in caplog.text


def test_what_fails_after_a_merge_is_recorded_as_the_reason(world: World) -> None:
    submission = copied(world)
    world.verifier().api.merge_pull_request(RESULTS, world.send(submission), repo_type="dataset")
    (verdict,) = world.verifier(play=lambda *asked: {}).rulings()
    assert verdict.reason.startswith("Merged, and refused when it was verified: the check of an entry must not fail")
    assert world.verifier().results().row(submission.id).badge == "self-reported"
    assert list(world.verifier().rulings()) == []


def test_a_checkpoint_beyond_the_verifiers_means_is_replayed_only_and_not_downloaded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "_OTHER_BYTES", 0)
    verifier = world.verifier(limits=Limits(parameters=1000))
    monkeypatch.setattr(service, "copy", None)
    record = verifier.verify("0" * 32, *world.entry("good"))
    assert record.badge == REPLAYED
    assert "the files of me/good must have at most 8000 bytes together, got" in record.notes[0]


def test_what_an_entry_makes_the_verifier_download_goes_with_its_check_and_leaves_half_of_the_disk(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    afresh = dataclasses.replace(world, hub=dataclasses.replace(world.hub, cache_dir=tmp_path))
    verifier = afresh.verifier()
    entry, episodes = world.entry("good")
    assert verifier.verify("0" * 32, entry, episodes).badge == VERIFIED
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2000))
    with pytest.raises(HubError, match="bytes free, got 2000; free some"):
        verifier.verify("0" * 32, entry, episodes)
    assert [*tmp_path.rglob("*.safetensors"), *tmp_path.glob("hf-credit-verification-*")] == []


def test_of_several_checkpoints_that_fill_the_disk_the_entry_is_at_fault(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wanted, most = ("me/good", world.commits["good"]), 2**30
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2000))
    with pytest.raises(HubError, match="bytes free, got 2000; free some"):
        world.verifier()._checkpoint(tmp_path, *wanted, most)
    (tmp_path / "another checkpoint").mkdir()
    with pytest.raises(TooLarge):
        world.verifier()._checkpoint(tmp_path, *wanted, most)


def full_disk(*_: Any) -> dict[str, Any]:
    raise OSError(errno.ENOSPC, "No space left on device")


def only_without_weights(download: Callable[..., Any]) -> Callable[..., Any]:
    """A download for whose weights the disk has no room."""
    return lambda api, *of, filename, **how: (
        full_disk() if filename.endswith(".safetensors") else download(api, *of, filename=filename, **how)
    )


@pytest.mark.parametrize("trouble", ["storage", "download", "play"])
def test_trouble_of_the_storage_or_the_disk_leaves_a_request_open(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(retries, "pause", lambda seconds: None)
    patient = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})
    monkeypatch.setattr("huggingface_hub.utils._http.time", patient)
    faults = Faults()
    with serving(tmp_path / "hub", hooks=faults) as served:
        world = world_on(served, board, tmp_path / "cache")
        number, verifier = world.send(packed(*world.entry("good"))), world.verifier()
        with monkeypatch.context() as patch:
            if trouble == "storage":
                faults.rules.append(Fault(effect="status", path="me/good/resolve/", status=503))
            if trouble == "download":
                patch.setattr(HfApi, "hf_hub_download", only_without_weights(HfApi.hf_hub_download))
            (left,) = (world.verifier(play=full_disk) if trouble == "play" else verifier).rulings()
        assert (left.number, left.listed) == (number, False)
        assert left.reason.endswith("verify it again.")
        assert world.discussion(number).status == "open"
        faults.rules.clear()
        (listed,) = verifier.rulings()
        assert listed.listed


def test_trouble_of_the_hub_itself_closes_nothing(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "hub") as served:
        world = world_on(served, board, tmp_path / "cache")
        number, verifier = world.send(packed(*world.entry("good"))), world.verifier()
    monkeypatch.setattr(retries, "pause", lambda seconds: None)
    with pytest.raises(HubError, match="must be reachable"):
        verifier.handle(number)
    with serving(tmp_path / "hub") as served:
        found = HfApi(endpoint=served.url).get_discussion_details(RESULTS, number, repo_type="dataset")
    assert found.status == "open"
