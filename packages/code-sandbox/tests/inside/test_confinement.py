"""The rights of a confined process, as it reports them."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path

import pytest

from code_sandbox.inside.confinement import LANDLOCK, NAMESPACES, NOBODY, SCRATCH, _readable, standard_library
from code_sandbox.isolation import tried
from code_sandbox.unit_tests import run_tests

LOOK = """
import json, os, resource
def look():
    folders = {}
    for folder in ("/", "/scratch", os.path.dirname(os.__file__) + "/site-packages"):
        try:
            folders[folder] = sorted(os.listdir(folder))
        except OSError as error:
            folders[folder] = type(error).__name__
    return json.dumps({
        "pid": os.getpid(), "parent": os.getppid(), "user": os.getuid(), "groups": [os.getgid(), os.getegid()],
        "folder": os.getcwd(), "host": os.uname().nodename, "environment": dict(os.environ), "folders": folders,
        "memory": resource.getrlimit(resource.RLIMIT_AS), "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "core": resource.getrlimit(resource.RLIMIT_CORE), "time": resource.getrlimit(resource.RLIMIT_CPU),
    })
def scratch():
    with open("file", "w") as file:
        file.write("kept")
    return os.listdir("."), open("file").read()
"""


def need(level: str) -> None:
    if (reason := tried(level)) is not None:
        pytest.skip(f"this machine does not give {level}: {reason}")


def looked(level: str) -> dict[str, object]:
    """Returns the report in pieces, the last ones empty, since a message has at most 200 characters."""
    tests = [f"raise KeyError(look()[{place}:{place + 150}])" for place in range(0, 1500, 150)]
    outcomes = run_tests(LOOK, tests, level=level).outcomes
    text = "".join(ast.literal_eval(outcome.message.removeprefix("KeyError: ")) for outcome in outcomes)
    found: dict[str, object] = json.loads(text)
    return found


def test_with_namespaces_the_process_is_alone() -> None:
    need(NAMESPACES)
    found = looked(NAMESPACES)
    assert (found["pid"], found["parent"]) == (1, 0)
    assert found["folder"] == SCRATCH
    assert found["environment"] == {}
    folders = found["folders"]
    assert isinstance(folders, dict)
    assert set(folders["/"]) == {path.split("/")[1] for path in [SCRATCH, *standard_library()]} or folders["/"] == (
        "PermissionError"
    )
    (installed,) = [name for path, name in folders.items() if path.endswith("site-packages")]
    assert installed in ("PermissionError", "FileNotFoundError")  # Debian's Python has no such folder


@pytest.mark.parametrize("level", [NAMESPACES, LANDLOCK])
def test_limits_hold_and_cannot_be_raised(level: str) -> None:
    need(level)
    found = looked(level)
    assert found["memory"] == [2**29, 2**29]
    assert found["files"] == [64, 64]
    assert found["core"] == [0, 0]
    assert found["time"] == [16, 16]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("level", [NAMESPACES, LANDLOCK])
def test_code_that_root_has_run_is_nobodys(level: str) -> None:
    need(level)
    found = looked(level)
    assert (found["user"], found["groups"]) == (NOBODY, [NOBODY, NOBODY])


@pytest.mark.parametrize("level", [NAMESPACES, LANDLOCK])
def test_late_imports_find_their_modules(level: str) -> None:
    need(level)
    code = "def late():\n    import json.tool, xml.dom.minidom\n    return xml.dom.minidom.__name__"
    assert run_tests(code, ["assert late() == 'xml.dom.minidom'"], level=level).score == 1


def test_a_broken_link_is_not_part_of_the_standard_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module.py").touch()
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "sitecustomize.py").symlink_to(tmp_path / "missing" / "sitecustomize.py")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert _readable() == [str(tmp_path / "module.py")]


def test_the_scratch_is_kept_for_a_run_and_not_for_the_next() -> None:
    need(NAMESPACES)
    for _ in range(2):
        tests = ["assert scratch() == (['file'], 'kept')", "assert scratch() == (['file'], 'kept')"]
        assert run_tests(LOOK, tests, level=NAMESPACES).score == 1


def test_without_namespaces_there_is_no_scratch() -> None:
    need(LANDLOCK)
    (outcome,) = run_tests(LOOK, ["scratch()"], level=LANDLOCK).outcomes
    assert outcome.kind == "error"
    assert outcome.message.startswith("PermissionError")
