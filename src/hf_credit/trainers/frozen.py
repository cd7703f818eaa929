"""The frozen copy of the policy that a method plays or compares with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType
from safetensors.torch import load_file, save_file

from hf_credit.files import replaced
from hf_credit.methods import Method
from hf_credit.trainers.component import Component, Seam

FROZEN_FILE = "frozen_policy.safetensors"


class FrozenPolicy(Component):
    """A copy of the policy's trained weights that follows it between updates, and is in every checkpoint.

    With LoRA these are the weights of the adapters. It shares the weights that are not trained.

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
        self.model, self.method = accelerator.unwrap_model(trainer.model), method
        dtype = None if method.frozen_decay is None else torch.float32  # small steps are lost in bfloat16
        self.weights = {name: one.detach().to(dtype or one.dtype, copy=True) for name, one in self._trained()}

    @torch.no_grad()
    def before_update(self, updates: int) -> None:
        """Follows the policy, `updates` updates after the start.

        It moves towards the current weights w, copy <- decay copy + (1 - decay) w, or takes them over.
        """
        decay, every = self.method.frozen_decay, self.method.refresh_frozen_every or 1
        for name, parameter in self._trained():
            if decay is not None:
                self.weights[name].lerp_(parameter.to(self.weights[name].dtype), 1 - decay)
            elif updates % every == 0:
                self.weights[name].copy_(parameter)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Gives the policy the weights of the copy, and its own again on exit, also on errors."""
        current = {name: parameter.data for name, parameter in self._trained()}
        try:
            for name, parameter in self._trained():
                parameter.data = self.weights[name].to(parameter.dtype)
            yield
        finally:
            for name, parameter in self._trained():
                parameter.data = current[name]

    def on_checkpoint(self, folder: Path) -> None:
        weights = {name: weight.contiguous() for name, weight in self.weights.items()}
        with replaced(folder / FROZEN_FILE) as path:
            save_file(weights, path)

    @torch.no_grad()
    def load(self, folder: Path, state: Mapping[str, Any], same: bool) -> None:
        saved = load_file(folder / FROZEN_FILE)
        if saved.keys() != self.weights.keys():
            raise ValueError(
                "a frozen copy must have the names of the policy's trained weights, got others; resume with the same "
                "model."
            )
        for name, weight in saved.items():
            self.weights[name].copy_(weight)

    def _trained(self) -> list[tuple[str, Any]]:
        return [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
