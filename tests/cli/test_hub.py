"""`hf-credit hub`, which is local-hub's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local_hub.running import serving


def test_it_has_the_commands_of_local_hub(command: Callable[..., Any], tmp_path: Path) -> None:
    with serving(tmp_path):
        pass
    assert command("hub", "check", str(tmp_path)) == (0, "0 repositories, 0 commits, 0 files: no problems\n", "")
    code, _, error = command("hub", "check", str(tmp_path / "none"))
    assert code == 1
    assert error.startswith("Error: the folder of a Hub must have hub.sqlite")


@pytest.mark.parametrize("words", [["serve", "folder", "--port", "0"], ["run-space", "folder", "me/space"]])
def test_without_local_hub_it_says_what_to_install(words: list[str]) -> None:
    script = f"""
import sys
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "local_hub" else find_spec(name, *rest)
from hf_credit.cli import main
main({["hub", *words]!r})
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: your own Hub needs the package local-hub, got none; run pip install ./packages/local-hub "
        "'cryptography>=44' in a clone.\n"
    )
