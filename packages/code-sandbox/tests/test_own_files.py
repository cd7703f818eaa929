"""A real process that restricts its files, and then tries others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import code_sandbox

_TRY = """
import ctypes, sys
from code_sandbox.own_files import keep_to
secret, shown, folder = sys.argv[1:]
ctypes.PyDLL(None).prctl(38, 1, 0, 0, 0)
if not keep_to([shown, "/not/there"], folder):
    print("cannot")
    sys.exit()
print(open(shown).read())
open(folder + "/own", "w").write("mine")
for path, mode in ((secret, "r"), (shown, "a")):
    try:
        open(path, mode)
    except PermissionError:
        print("refused")
"""


def test_a_process_reads_only_named_files_and_writes_only_to_its_folder(tmp_path: Path) -> None:
    # The folder of the tests is under /tmp, which no system path of the process covers.
    secret, shown, folder = tmp_path / "secret", tmp_path / "shown", tmp_path / "folder"
    secret.write_text("token")
    shown.write_text("weights")
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _TRY, str(secret), str(shown), str(folder)],
        cwd=folder,
        env={"PYTHONPATH": str(Path(code_sandbox.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    if done.stdout.strip() == "cannot":
        pytest.skip("this kernel has no Landlock")
    assert done.stdout.split() == ["weights", "refused", "refused"]
    assert (folder / "own").read_text() == "mine"
