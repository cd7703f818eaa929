"""The process that plays strangers' checkpoints: really one, which looks for a secret outside."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hf_credit_leaderboard.confined import NO_OTHER_FILES, NO_OTHER_PROCESSES, NO_SOCKETS

_TRY = """
import glob, json, os, socket, sys
from pathlib import Path
from hf_credit_leaderboard.confined import confine

own, outside, place = sys.argv[1:]
held = confine(Path(own), [], 2**34)

def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__

def connect():
    socket.socket(socket.AF_UNIX).connect(place)
    return "connected"

def secrets():
    return any(b"hf_secret" in Path(one).read_bytes() for one in glob.glob("/proc/*/environ"))

found = {
    "of the parent": tried(lambda: "hf_secret" in Path(f"/proc/{outside}/environ").read_text()),
    "of any": tried(secrets),
    "socket": tried(connect),
    "own": tried(lambda: Path("/proc/self/status").exists()),
    "processors": tried(lambda: "processor" in Path("/proc/cpuinfo").read_text()),
}
print(json.dumps([held, found]))
"""
_PARENT = """
import os, subprocess, sys
words = [sys.executable, "-c", sys.argv[1], sys.argv[2], str(os.getpid()), sys.argv[3]]
sys.exit(subprocess.run(words, env={"PYTHONPATH": sys.argv[4]}).returncode)
"""


def _sources(root: Path) -> str:
    return os.pathsep.join(map(str, (root / "src", root / "packages" / "leaderboard" / "src")))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux confines processes")
def test_it_reads_no_environment_of_others_and_opens_no_socket(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as listener:
        place = f"{short}/socket"  # longer paths are no addresses
        listener.bind(place)
        listener.listen()
        done = subprocess.run(
            [sys.executable, "-c", _PARENT, _TRY, str(folder), place, _sources(root)],
            env={"HF_TOKEN": "hf_secret"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    held, found = json.loads(done.stdout)
    if {NO_OTHER_PROCESSES, NO_OTHER_FILES} & set(held):
        assert found["of the parent"] in ("FileNotFoundError", "PermissionError")
        assert found["of any"] in (False, "PermissionError")
    if NO_SOCKETS in held:
        assert found["socket"] == "PermissionError"
    assert (found["own"], found["processors"]) == (True, True)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux confines processes")
def test_it_fails_as_the_process_in_it_does(root: Path, tmp_path: Path) -> None:
    code = "import os, pathlib, sys; from hf_credit_leaderboard.confined import confine; "
    words = [sys.executable, "-c", f"{code}confine(pathlib.Path(sys.argv[1]), [], 2**34); os._exit(7)", str(tmp_path)]
    done = subprocess.run(words, env={"PYTHONPATH": _sources(root)}, capture_output=True, check=False)
    assert done.returncode == 7, done.stderr
