"""The files that a ruleset allows, tried in separate processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from code_sandbox.inside import landlock
from code_sandbox.inside.confinement import library

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or landlock.version(library()) < 1, reason="the kernel has no Landlock"
)

SCRIPT = """
import os, sys
from code_sandbox.inside import landlock
from code_sandbox.inside.confinement import library
readable, scratch, other, port = sys.argv[1:]
libc = library()
rules = landlock.ruleset(libc, [readable], scratch)
assert libc.prctl(38, 1, 0, 0, 0) == 0
landlock.restrict(libc, rules)

def can(attempt):
    try:
        attempt()
    except PermissionError:
        return "no"
    return "yes"

print(
    can(lambda: open(f"{readable}/file").read()),
    can(lambda: open(f"{readable}/file", "w")),
    can(lambda: os.remove(f"{readable}/file")),
    can(lambda: open(f"{scratch}/file", "w").write("x")),
    can(lambda: os.remove(f"{scratch}/file")),
    can(lambda: open(f"{other}/file").read()),
    can(lambda: os.listdir(other)),
    can(lambda: open(f"{other}/new", "w")),
    can(lambda: os.symlink("file", f"{scratch}/link")),
)
"""


def test_only_what_is_named_may_be_opened(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("readable", "scratch", "other")]
    for folder in folders:
        folder.mkdir()
        (folder / "file").write_text("x")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, folders), "0"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["yes", "no", "no", "yes", "yes", "no", "no", "no", "no"]


def test_rules_about_what_does_not_exist_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        landlock.ruleset(library(), [str(tmp_path / "missing")])
