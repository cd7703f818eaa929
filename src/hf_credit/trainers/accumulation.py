"""Backward passes of one optimizer step that are not its last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel


@contextmanager
def accumulating(model: Any, accelerator: Accelerator) -> Iterator[None]:
    """A backward pass within adds to the gradient and leaves the exchange between processes to the last one.

    Args:
        model: as `accelerator` prepared it.
        accelerator: of the run.
    """
    state = accelerator.gradient_state
    before = state.sync_gradients
    with model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext():
        state._set_sync_gradients(False)
        try:
            yield
        finally:
            state._set_sync_gradients(before)
