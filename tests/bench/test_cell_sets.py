"""Cells of the bench on a Hub: what is loaded is what was published, and names of strangers import nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_credit.cli import main
from hf_credit.hub import fetch
from hf_credit_bench import cells, fields, guide, load_cells, publish_cells
from local_hub.running import Served


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the bench leaves it."""
    folder = tmp_path_factory.mktemp("bench")
    todo = cells.jobs(["rloo", "counterfactual_grpo"], ["chain"], {"length": 2}, seeds=0, updates=8)
    list(cells.run(todo, folder / "cells.jsonl", processes=1))
    (folder / "index.md").write_text("# Which method?\n\nRead this.\n")
    (folder / "fields_narrow.png").write_bytes(b"\x89PNG")
    return folder


def test_cells_are_loaded_as_they_were_published(hub: Served, filled: Path) -> None:
    where: dict[str, Any] = {"endpoint": hub.url, "token": hub.token()}
    done = publish_cells(filled, "me/creditbench", **where)
    assert "fields_narrow.png" in done.files
    ours = [{**cell} for cell in cells.read(filled / "cells.jsonl").values()]
    loaded = load_cells("me/creditbench", **where)
    assert [{name: value for name, value in one.items() if value is not None} for one in loaded] == [
        {name: value for name, value in one.items() if value is not None} for one in ours
    ]
    assert guide.tables(loaded) == guide.tables(ours)
    card = fetch("me/creditbench", repo_type="dataset", allow=["README.md"], **where).files["README.md"].read_text()
    assert "Read this." in card
    assert 'load_cells("me/creditbench")' in card


def test_a_folder_without_cells_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must have cells, got none"):
        publish_cells(tmp_path, "me/nothing", dry_run=True)


def test_the_bench_publishes_what_it_filled_and_goes_on_from_its_table(
    hub: Served, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", hub.token())
    guide.write_parquet(list(cells.read(filled / "cells.jsonl").values()), tmp_path / "cells.parquet")
    asked = ["--problem", "chain", "--dial", "length=2", "--seeds", "0", "--updates", "8"]
    with pytest.raises(SystemExit) as left:
        main(["bench", "--method", "rloo", *asked, "--output", str(tmp_path), "--push-to-hub", "me/again"])
    assert not left.value.code
    assert "me/again" in capsys.readouterr().out
    assert [one["method"] for one in load_cells("me/again")] == ["rloo", "counterfactual_grpo"]
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == 2


def test_names_in_cells_of_strangers_are_not_imported() -> None:
    assert fields.kind_of({"method": "os:system"}) == "own"
    assert cells.from_rows([{"dials": "[1]", "options": json.dumps({})}]) == []
