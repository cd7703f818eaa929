"""Changes are derived from functions, and the script that tries them tells a killed one from a survivor."""

from __future__ import annotations

import ast
import importlib.util
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


@pytest.mark.parametrize("function", SCRIPT.targets(SCRIPT.ROOT))
def test_every_function_of_the_table_can_be_changed_and_has_tests(root: Path, function: str) -> None:
    path, tests = SCRIPT.targets(root)[function]
    made = SCRIPT.changes(function, (root / path).read_text("utf-8"))
    assert made
    for one in made:
        ast.parse(one.text)
    assert all((root / test).is_file() for test in tests)


def test_what_no_test_can_tell_is_a_change_of_a_function_of_the_table(root: Path) -> None:
    possible = {
        (function, one.kind, one.old)
        for function, (path, _) in SCRIPT.targets(root).items()
        for one in SCRIPT.changes(function, (root / path).read_text("utf-8"))
    }
    assert {*SCRIPT.EQUIVALENT} <= possible
    assert all(reason.endswith(".") for reason in SCRIPT.EQUIVALENT.values())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return a < b", {"comparison": "return (a <= b)"}),
        ("return a in b", {"comparison": "return (a not in b)"}),
        ("return a - b", {"operator": "return (a + b)"}),
        ("a += b", {"operator": "a -= b"}),
        ("return a and b", {"operand": "return (a)"}),
        ("return not a", {"negation": "return (a)"}),
        ("return -a", {"sign": "return (a)"}),
        ("return True", {"truth": "return (False)"}),
        ("return 2", {"number": "return (3)"}),
        ("return a if b else c", {"branch": "return a if (False) else c"}),
        ("return [a for a in b if a]", {"filter": "return [a for a in b if (True)]"}),
        ("return a[b:]", {"slice": "return a[:]"}),
        ("return a[b]", {"index": "return (a)"}),
        ("return dict[b]", {}),
        ("return max(a)", {"extreme": "return (min(a))"}),
        ("a.append(b)", {"statement": "pass"}),
        ("'ü', a(b)", {}),
        ("raise ValueError(a < b)", {}),
        ("c: Literal[1] = f'{a + b}'", {}),
        ("return zip(a, b, strict=True)", {}),
    ],
)
def test_a_change_is_one_of_its_kind(line: str, expected: dict[str, str]) -> None:
    text = (
        f'def take():\n    return 1\n\n\nclass Owner:\n    def take(self, b=1):\n        """Text."""\n        {line}\n'
    )
    made = SCRIPT.changes("module:Owner.take", text)
    assert {one.kind: one.text for one in made} == {kind: text.replace(line, new) for kind, new in expected.items()}


def test_a_function_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="a function must be in its module once, got 0 of 'module:two'"):
        SCRIPT.changes("module:two", "def one(): ...")


def test_all_functions_of_a_module_are_found() -> None:
    assert SCRIPT.functions_in("def one(): ...\nclass A:\n    def two(self): ...\nx = 1") == ["one", "A.two"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of two functions, and a test of one of them."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # starts in half the time
    for name, text in {
        "src/doubling/twice.py": "def double(x):\n    return x + x\n\n\ndef negative(x):\n    return x < 0\n",
        "src/doubling/__init__.py": "",
        "tests/test_twice.py": "from doubling.twice import double\n\n\ndef test_it():\n    assert double(3) == 6\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(SCRIPT, "ROOT", tmp_path)
    monkeypatch.setattr(SCRIPT, "FUNCTIONS", "doubling.twice: * | tests/test_twice.py")
    monkeypatch.setattr(SCRIPT, "IMPORTED", ())
    return tmp_path


def test_what_no_test_notices_survives_and_the_source_stays_as_it_is(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (project / "src/doubling/twice.py").read_text()
    assert SCRIPT.main(["--every"]) == 1
    assert capfd.readouterr().out.splitlines() == [
        "killed: doubling.twice:double operator (line 2): x + x -> x - x",
        "SURVIVED: doubling.twice:negative comparison (line 6): x < 0 -> x <= 0",
        "SURVIVED: doubling.twice:negative number (line 6): 0 -> 1",
        "SURVIVED: doubling.twice:negative comparison (line 6): x < 0 -> x <= 0",
        "SURVIVED: doubling.twice:negative number (line 6): 0 -> 1",
        "1 of 3 killed",
    ]
    assert (project / "src/doubling/twice.py").read_text() == before
    assert SCRIPT.main(["double"]) == 0
    assert SCRIPT.main(["nothing of that name"]) == 1


def test_what_cannot_be_told_is_not_tried(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCRIPT, "EQUIVALENT", {("doubling.twice:negative", "number", "0"): "A reason."})
    assert [one.kind for one in SCRIPT.chosen(project, "doubling.twice:negative", None)] == ["comparison"]


def test_a_seed_chooses_some_changes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCRIPT, "EACH", 1)
    choices = {SCRIPT.chosen(project, "doubling.twice:negative", seed)[0].kind for seed in range(20)}
    assert choices == {"comparison", "number"}
    again = [SCRIPT.chosen(project, "doubling.twice:negative", 3) for _ in range(2)]
    assert again[0] == again[1]


def test_a_change_that_never_ends_or_cannot_be_imported_is_killed(project: Path) -> None:
    path, tests = project / "src/doubling/twice.py", ["tests/test_twice.py"]
    for text in ("while True: ...", "import no_such_module"):
        path.write_text(text)
        assert SCRIPT.fails(project, project, tests, 1.0)


def test_tests_that_fail_anyway_or_do_not_exist_kill_nothing(project: Path) -> None:
    with pytest.raises(RuntimeError, match="pytest must find the tests of a function"):
        SCRIPT.fails(project, project, ["tests/test_half.py"], None)
    (project / "src/doubling/twice.py").write_text("def double(x):\n    return x + x + 1\n")
    with pytest.raises(ValueError, match=r"must pass without any change(.|\n)*assert 7 == 6"):
        SCRIPT.main(["double"])
