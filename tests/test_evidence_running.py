"""What the scripts of `evaluation/` share: one cell alone, and committed tables that no part of a run replaces."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

PHASES = [
    [("vote", "start", 0), ("vote", "start", 1), ("relay", "start", 0)],
    [("vote", "C3, shared", 0), ("vote", "C3, shared", 1), ("relay", "C3, shared", 0)],
]


@pytest.fixture
def fresh(root: Path) -> Iterator[Path]:
    """The folder of the scripts, which import each other by their bare names; none is left behind."""
    before, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(root / "evaluation"))
    yield root / "evaluation"
    sys.path[:] = before
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(root / "evaluation")):
            sys.modules.pop(name)


@pytest.fixture
def running(fresh: Path) -> ModuleType:
    return importlib.import_module("running")


def file_of(work: Path, *cell: object) -> Path:
    return work / "-".join(map(str, cell))


def test_a_cell_alone_is_run_with_its_start(running: ModuleType) -> None:
    assert running.one_cell(PHASES, ["vote", "C3, shared", "1"], "start") == [
        [("vote", "start", 1)],
        [("vote", "C3, shared", 1)],
    ]
    with pytest.raises(ValueError, match=r"a cell must be one of 'vote' 'start' '0'.*, got 'vote' '7'; name"):
        running.one_cell(PHASES, ["vote", "7"], "start")


@pytest.mark.parametrize(
    ("missing", "named", "expected"), [(0, None, "committed"), (1, None, "work/results"), (1, "own", "own")]
)
def test_committed_tables_are_replaced_by_whole_runs_alone(
    running: ModuleType, tmp_path: Path, missing: int, named: str | None, expected: str
) -> None:
    options = argparse.Namespace(work=tmp_path / "work", results=None if named is None else tmp_path / named)
    options.work.mkdir()
    for cell in [cell for phase in PHASES for cell in phase][missing:]:
        file_of(options.work, *cell).touch()
    found = running.results_folder(options, tmp_path / "committed", PHASES, file_of)
    assert found == tmp_path / expected


@pytest.mark.parametrize("name", ["c3", "vpr"])
def test_every_experiment_runs_a_cell_alone_and_keeps_its_committed_tables(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sys.path.insert(0, str(fresh / name))
    run = importlib.import_module("run")
    asked: list[list[list[tuple[object, ...]]]] = []
    monkeypatch.setattr(run, "run_cells", lambda work, settings, phases, *rest, **more: asked.append(list(phases)))
    with pytest.raises(ValueError, match="a cell must be one of"):
        run.main(["--work", str(tmp_path), "--cell", "nothing"])
    committed = {path: path.read_bytes() for path in (fresh / name / "results").rglob("*") if path.is_file()}
    try:
        run.main(["--work", str(tmp_path)])
    except (ValueError, KeyError, IndexError, StopIteration):
        pass  # of no cell there are no tables
    finally:
        changed = [path for path, content in committed.items() if path.read_bytes() != content]
        for path in changed:
            path.write_bytes(committed[path])
    assert changed == []
    start, *_, last = (cell for phase in asked[0] for cell in phase)
    run.main(["--work", str(tmp_path), "--cell", *map(str, last)])
    assert len(asked[1]) == 2
    assert asked[1][1] == [last]
    assert [cell[-1] for cell in asked[1][0]] == [last[-1]]
    assert start[-2] == asked[1][0][0][-2]
