"""What critics ask of accelerate, for a process that is alone with one policy."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor


class _Alone:
    distributed_type = DistributedType.NO
    mixed_precision = "no"
    num_processes = 1
    process_index = 0
    is_main_process = True

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def autocast(self) -> AbstractContextManager[None]:
        return nullcontext()

    def reduce(self, tensor: Tensor, reduction: str) -> Tensor:
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor


def alone_on(device: str | torch.device) -> Accelerator:
    """An accelerator, as far as critics use one, of a single process on any device.

    accelerate itself knows one device a process and one way to train, which whoever came first has chosen: a policy
    that is diagnosed on another device, after a training in the same process, would be met by critics that lie on the
    first.
    """
    return cast(Accelerator, _Alone(torch.device(device)))
