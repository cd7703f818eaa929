"""The benchmark of diagnostics runs, and both sides meet the same decisions."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest


def test_replaying_saves_what_is_said_upstream(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(root / "benchmarks")
    sizes = ("--buckets=6", "--candidates=2", "--replays=2", "--value-actions=1", "--tasks=3", "--message=3")
    small = ("--problem=4", "--hidden-size=32", "--layers=1", "--repeats=1")
    importlib.import_module("diagnostics").main([*sizes, *small, "--output", str(tmp_path)])
    assert "| chain, 4 roles" in capsys.readouterr().out
    rows = json.loads((tmp_path / "diagnostics.json").read_text(encoding="utf-8"))["rows"]
    by_side = {(row["collaboration"], row["side"]): row for row in rows}
    assert len(by_side) == 6
    for name in ("relay, 2 roles", "chain, 4 roles"):
        replayed, anew = by_side[name, "replayed"], by_side[name, "from the start"]
        assert replayed["scores"] == anew["scores"] > 0
        assert replayed["replies tried"] == anew["replies tried"]
        assert replayed["messages"] < anew["messages"]
    chain = by_side["chain, 4 roles", "replayed"]
    assert chain["generated tokens"] == pytest.approx(3 * chain["messages"])
