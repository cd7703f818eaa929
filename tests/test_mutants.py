"""The list of mutants fits the source, and the script that tries them tells a killed one from a survivor."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("mutants", Path(__file__).with_name("mutants.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()


@pytest.mark.parametrize("mutant", SCRIPT.MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_a_text_that_is_there_once_and_names_tests_that_exist(root: Path, mutant: Any) -> None:
    assert re.match(r"(packages/[^/]+/)?src/", mutant.path)
    assert mutant.new != mutant.old
    ast.parse(SCRIPT.mutated(root, mutant))
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (root / path).read_text(encoding="utf-8"), test


def test_every_mutant_has_a_name_of_its_own() -> None:
    names = [mutant.name for mutant in SCRIPT.MUTANTS]
    assert len(set(names)) == len(names)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of two functions, and a test of one of them."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # starts in half the time
    for name, text in {
        "src/doubling.py": "def double(x):\n    return x + x\n\n\ndef negative(x):\n    return x < 0\n",
        "tests/test_doubling.py": "from doubling import double\n\n\ndef test_double():\n    assert double(3) == 6\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def mutant(**changed: Any) -> Any:
    values = {
        "name": "no sum",
        "path": "src/doubling.py",
        "old": "x + x",
        "new": "x",
        "tests": ["tests/test_doubling.py::test_double"],
    }
    return SCRIPT.Mutant(**{**values, **changed})


def test_what_no_test_notices_survives_and_the_source_stays_as_it_is(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (project / "src/doubling.py").read_text()
    unseen = mutant(name="no sign", old="x < 0", new="x > 0")
    assert SCRIPT.survivors(project, [unseen, mutant()]) == ["no sign"]
    assert capsys.readouterr().out.splitlines()[1:] == ["SURVIVED: no sign", "killed: no sum"]
    assert (project / "src/doubling.py").read_text() == before


@pytest.mark.parametrize("old", ["y", "x"])
def test_a_text_that_is_not_there_once_is_an_error(project: Path, old: str) -> None:
    with pytest.raises(ValueError, match="must stand in its file once, got"):
        SCRIPT.survivors(project, [mutant(old=old)])


def test_tests_that_fail_anyway_or_do_not_exist_kill_nothing(project: Path) -> None:
    with pytest.raises(RuntimeError, match="pytest must run the tests of a mutant"):
        SCRIPT.survivors(project, [mutant(tests=["tests/test_doubling.py::test_half"])])
    (project / "src/doubling.py").write_text("def double(x):\n    return x + x + 1\n")
    with pytest.raises(ValueError, match="must pass without any change"):
        SCRIPT.survivors(project, [mutant()])


def test_a_change_that_cannot_be_imported_kills_nothing(project: Path) -> None:
    with pytest.raises(RuntimeError, match="pytest must run the tests of a mutant"):
        SCRIPT.survivors(project, [mutant(old="def double(x):", new="def twice(x):")])


def test_words_choose_mutants(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    monkeypatch.setattr(SCRIPT, "MUTANTS", [mutant(), mutant(name="no sign", old="x < 0", new="x > 0")])
    monkeypatch.setattr(SCRIPT, "ROOT", project)
    assert SCRIPT.main(["sum"]) == 0
    assert SCRIPT.main(["sign"]) == 1
    assert SCRIPT.main(["nothing of that name"]) == 1
