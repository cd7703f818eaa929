"""Metrics as Spaces: what evaluate loads is the folder, and code of others runs with consent only."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hf_credit.hub import load_metric, publish_metric
from hf_credit.metrics import METRICS, build
from local_hub.running import Served


def test_a_name_is_the_librarys_own_metric_without_any_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pass_at_k").mkdir()  # hides nothing
    (tmp_path / "pass_at_k" / "pass_at_k.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)

    def refuse(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    metric = load_metric("pass_at_k", cache_dir=str(tmp_path / "cache"))
    assert metric.compute(predictions=[[1.0, 0.0], [0.0, 0.0]], k=[1, 2]) == {"pass@1": 0.25, "pass@2": 0.5}
    with pytest.raises(ValueError, match="has no revision, got 'v1' of 'pass_at_k'; write owner/name"):
        load_metric("pass_at_k", revision="v1")
    with pytest.raises(ValueError, match=r"got 'pass_at_j'; did you mean 'pass_at_k'\?"):
        load_metric("pass_at_j")


def test_our_own_code_needs_no_consent(hub: Served, tmp_path: Path) -> None:
    where = {"endpoint": hub.url, "token": hub.token()}
    for name in METRICS:
        publish_metric(name, f"me/{name}", **where)
    metric = load_metric("me/pass_at_k", endpoint=hub.url, cache_dir=str(tmp_path))
    assert metric.compute(predictions=[[1.0, 0.0], [0.0, 0.0]], k=[1, 2]) == {"pass@1": 0.25, "pass@2": 0.5}


def test_code_of_others_needs_consent(hub: Served, tmp_path: Path) -> None:
    where = {"endpoint": hub.url, "token": hub.token()}
    folder = build("pass_at_k", tmp_path)
    file = folder / "pass_at_k.py"
    file.write_text(file.read_text() + "\nprint('theirs ran')\n")
    done = publish_metric(folder, "them/pass_at_k", **where)
    with pytest.raises(ValueError, match=f"must have consent to run, got them/pass_at_k@{done.commit}"):
        load_metric("them/pass_at_k", endpoint=hub.url)
    options = {"cache_dir": str(tmp_path / "cache"), "endpoint": hub.url}
    assert load_metric("them/pass_at_k", trust_remote_code=True, **options).compute(predictions=[[1.0]]) == {
        "pass@1": 1.0
    }


def test_a_metric_is_published_under_its_own_name(hub: Served, tmp_path: Path) -> None:
    where = {"dry_run": True, "endpoint": hub.url}
    with pytest.raises(ValueError, match="must be called 'pass_at_k' like its file, got 'me/other'"):
        publish_metric("pass_at_k", "me/other", **where)
    with pytest.raises(ValueError, match=r"got 'pass_at_j'; did you mean 'pass_at_k'\?"):
        publish_metric("pass_at_j", "me/pass_at_j", **where)
    mine = build("pass_at_k", tmp_path).rename(tmp_path / "mine")
    with pytest.raises(ValueError, match=r"a metric must have mine\.py, got .*mine' without; add it"):
        publish_metric(mine, "me/mine", **where)
    (mine / "pass_at_k.py").rename(mine / "mine.py")
    (mine / "app.py").unlink()  # the common page takes its place
    assert {"app.py", "mine.py"} <= set(publish_metric(mine, "me/mine", **where).files)
