"""What tests of critics share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from accelerate import Accelerator
from accelerate.state import AcceleratorState


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    """An accelerator of processors alone, of which nothing is left behind."""
    AcceleratorState._reset_state(True)
    yield Accelerator(cpu=True)
    AcceleratorState._reset_state(True)
