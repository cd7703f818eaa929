"""Metrics as Spaces: what evaluate loads is the folder, and code of others runs with consent only."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hf_credit.hub.metrics import OWN_CODE, code_digest, load_metric, publish_metric
from local_hub.running import Served

METRICS = Path(__file__).resolve().parents[2] / "hub_assets" / "metrics"


def test_the_digests_are_those_of_the_folders() -> None:
    folders = [path for path in METRICS.iterdir() if path.is_dir()]
    found = {path.name: code_digest({file.name: file for file in path.iterdir()}, path.name) for path in folders}
    assert found == OWN_CODE


def test_our_own_code_needs_no_consent(hub: Served, tmp_path: Path) -> None:
    where = {"endpoint": hub.url, "token": hub.token()}
    for name in OWN_CODE:
        publish_metric(METRICS / name, f"me/{name}", **where)
    metric = load_metric("me/pass_at_k", endpoint=hub.url, cache_dir=str(tmp_path))
    assert metric.compute(predictions=[[1.0, 0.0], [0.0, 0.0]], k=[1, 2]) == {"pass@1": 0.25, "pass@2": 0.5}


@pytest.mark.parametrize("file", ["pass_at_k.py", "computation.py"])
def test_code_of_others_needs_consent(file: str, hub: Served, tmp_path: Path) -> None:
    where = {"endpoint": hub.url, "token": hub.token()}
    folder = tmp_path / "pass_at_k"
    shutil.copytree(METRICS / "pass_at_k", folder)
    shutil.copy(METRICS / "app.py", folder)
    (folder / file).write_text((folder / file).read_text() + "\nprint('theirs ran')\n")
    done = publish_metric(folder, "them/pass_at_k", **where)
    with pytest.raises(ValueError, match=f"needs consent to run, got them/pass_at_k@{done.commit}"):
        load_metric("them/pass_at_k", endpoint=hub.url)
    options = {"cache_dir": str(tmp_path / "cache"), "endpoint": hub.url}
    assert load_metric("them/pass_at_k", trust_remote_code=True, **options).compute(predictions=[[1.0]]) == {
        "pass@1": 1.0
    }


def test_a_metric_is_published_under_its_own_name(hub: Served) -> None:
    with pytest.raises(ValueError, match="must be called 'pass_at_k' like its file, got 'me/other'"):
        publish_metric(METRICS / "pass_at_k", "me/other", dry_run=True, endpoint=hub.url)
    with pytest.raises(ValueError, match=r"must have __init__.py|must have metrics.py"):
        publish_metric(METRICS, "me/metrics", dry_run=True, endpoint=hub.url)
