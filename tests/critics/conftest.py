"""Fixtures for tests of critics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from accelerate import Accelerator
from accelerate.state import AcceleratorState


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    """An accelerator on the CPU; its global state is reset afterwards."""
    AcceleratorState._reset_state(True)
    yield Accelerator(cpu=True)
    AcceleratorState._reset_state(True)
