"""The frozen copy of the policy that a method plays or compares with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType
from safetensors.torch import load_file, save_file

from hf_credit.files import replaced
from hf_credit.methods import Method
from hf_credit.policies.frozen import FrozenCopy
from hf_credit.trainers.component import Component, Seam

FROZEN_FILE = "frozen_policy.safetensors"


class FrozenPolicy(FrozenCopy, Component):
    """A copy of the policy that follows it between updates, and is in every checkpoint.

    Args:
        trainer: of the policy.
        method: says when the copy is refreshed, or how it follows.

    Raises:
        ValueError: the set-up shards the policy.
    """

    def __init__(self, trainer: Seam, method: Method) -> None:
        accelerator = trainer.accelerator
        if accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED):
            raise ValueError(
                f"the method {method.name!r} keeps a frozen copy of the policy, got "
                f"{accelerator.distributed_type.value}, which shards one policy; train on several GPUs without it."
            )
        super().__init__(
            accelerator.unwrap_model(trainer.model), None if method.frozen_decay is None else torch.float32
        )
        self.method = method

    def before_update(self, updates: int) -> None:
        """Follows the policy, `updates` updates after the start."""
        if self.method.frozen_decay is not None:
            self.follow(self.method.frozen_decay)
        elif updates % (self.method.refresh_frozen_every or 1) == 0:
            self.refresh()

    def on_checkpoint(self, folder: Path) -> None:
        weights = {name: weight.contiguous() for name, weight in self.state().items()}
        with replaced(folder / FROZEN_FILE) as path:
            save_file(weights, path)

    def load(self, folder: Path, state: Mapping[str, Any], same: bool) -> None:
        self.load_state(load_file(folder / FROZEN_FILE))
