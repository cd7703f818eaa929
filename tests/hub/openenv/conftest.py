"""Real servers on loopback: our Spaces, and environments that others might have written."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if importlib.util.find_spec("openenv") is None:  # its import takes seconds, which only its own tests should spend
    pytest.skip("openenv is not installed", allow_module_level=True)

HERE = Path(__file__).parent
SPACES = HERE.parents[2] / "hub_assets" / "environments"


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that has every Space of this library, a Space `small` of 4x4 Sudoku with 4 blanks, and
    every environment of `foreign.py`, each under its name."""
    from hf_credit.hub.spaces import write_space

    own = tmp_path_factory.mktemp("spaces")
    write_space(own / "small", "sudoku", {"size": 4, "blanks": 4})
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(HERE / "serve.py"), str(SPACES), str(own)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()
