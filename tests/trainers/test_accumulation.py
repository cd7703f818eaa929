"""Whether a backward pass is the last of its step is what it was, once an earlier one is over."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator

from hf_credit.trainers.ranks import accumulating


@pytest.mark.parametrize("last", [True, False])
def test_within_it_gradients_are_not_exchanged_and_afterwards_as_before(last):
    accelerator = Accelerator(cpu=True)
    accelerator.gradient_state._set_sync_gradients(last)
    model = torch.nn.Linear(2, 1)
    try:
        with accumulating(model, accelerator):
            assert not accelerator.sync_gradients
        assert accelerator.sync_gradients == last
        with pytest.raises(RuntimeError, match="out of memory"), accumulating(model, accelerator):
            raise RuntimeError("out of memory")
        assert accelerator.sync_gradients == last
    finally:
        accelerator.gradient_state._set_sync_gradients(True)
