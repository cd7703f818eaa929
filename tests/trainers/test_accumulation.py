"""The flag of a step's last backward pass is restored after earlier passes."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator

from hf_credit.trainers.ranks import accumulating


@pytest.mark.parametrize("last", [True, False])
def test_gradients_are_not_exchanged_within_and_as_before_afterwards(last):
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
