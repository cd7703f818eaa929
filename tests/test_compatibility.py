from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
ROWS = f"| `make a` | 3.9 | |\n| `make a` | {PYTHON} | old |\n"
PAGE = f"# Page\n\n| command | Python |\n| --- | --- |\n{ROWS}\n- A note.\n"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path / "page.md"


@pytest.fixture
def compatibility(page: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("compatibility", Path(__file__).with_name("compatibility.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PAGE = page  # type: ignore[attr-defined]
    return module


def results(folder: Path, failures: int = 0) -> Path:
    path = folder / "results.xml"
    path.write_text(f'<testsuites><testsuite tests="9" failures="{failures}" errors="0" skipped="2"/></testsuites>')
    return path


def test_a_command_replaces_its_row_of_this_python_and_a_new_one_is_added_behind_the_last(
    compatibility: ModuleType, page: Path, tmp_path: Path
) -> None:
    for command in ("make a", "make b", "make b"):
        compatibility.main(results(tmp_path), command)
    lines = page.read_text().splitlines()
    rows = [line.split(" | ")[:2] for line in lines if line.startswith("| `")]
    assert rows == [["| `make a`", "3.9"], ["| `make a`", PYTHON], ["| `make b`", PYTHON]]
    assert "old" not in page.read_text()
    assert "7 (2 skipped)" in page.read_text()
    assert lines[-1] == "- A note."


def test_a_suite_that_failed_has_no_row(compatibility: ModuleType, page: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fix the tests"):
        compatibility.main(results(tmp_path, failures=1), "make b")
    assert page.read_text() == PAGE
