"""A Hub of one's own on loopback, for tests of what is published to it and loaded from it."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest
from hub_fixtures import hub, hub_env, impatient, online, pytest_generate_tests

__all__ = ["hub", "hub_env", "impatient", "online", "pytest_generate_tests"]


@pytest.fixture(scope="session")
def without_us(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment: the libraries of this one, and nothing that is installed to be edited."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(folder, symlinks=True)
    (place,) = folder.glob("lib/python*/site-packages")
    (place / "libraries.pth").write_text("\n".join(one for one in sys.path if one.endswith("site-packages")) + "\n")
    return folder / "bin" / "python"
