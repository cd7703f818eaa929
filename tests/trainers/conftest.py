"""Updates that several test modules compare."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def one_update_script() -> Path:
    """The script that makes one update, for torchrun."""
    return Path(__file__).with_name("one_update.py")


@pytest.fixture
def one_update(one_update_script: Path, tmp_path: Path) -> Callable[..., Any]:
    """`one_update(policy, **settings)`: trains once and returns the trainer, its gradients in `kept`."""
    spec = importlib.util.spec_from_file_location("one_update", one_update_script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda policy, **kwargs: module.one_update(policy, tmp_path / "run", **kwargs)
