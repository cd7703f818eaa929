"""A frozen copy of a policy's weights, such as the reference policy or an average of the policies so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class FrozenCopy:
    """A copy of a policy's trained weights: with LoRA those of the adapters, with sharding those of this process.

    It shares the weights that are not trained.

    Args:
        dtype: of the copy; that of each weight if `None`. A copy that uses `follow` needs float32, since small steps
            are lost in bfloat16.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype | None = None) -> None:
        self.model = model
        self.weights = {name: one.detach().to(dtype or one.dtype, copy=True) for name, one in self._trained()}

    @torch.no_grad()
    def refresh(self) -> None:
        for name, parameter in self._trained():
            self.weights[name].copy_(parameter)

    @torch.no_grad()
    def follow(self, decay: float) -> None:
        """Moves towards the current weights w: copy <- decay copy + (1 - decay) w.

        Args:
            decay: in (0, 1).
        """
        for name, parameter in self._trained():
            self.weights[name].lerp_(parameter.to(self.weights[name].dtype), 1 - decay)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Gives the policy the weights of the copy, and its own again on exit, also on errors."""
        own = {name: parameter.data for name, parameter in self._trained()}
        try:
            for name, parameter in self._trained():
                parameter.data = self.weights[name].to(parameter.dtype)
            yield
        finally:
            for name, parameter in self._trained():
                parameter.data = own[name]

    def state(self) -> dict[str, Tensor]:
        return dict(self.weights)

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned.

        Raises:
            ValueError: the weights are those of another model.
        """
        if state.keys() != self.weights.keys():
            raise ValueError(
                "a frozen copy must have the names of the policy's trained weights, got others; resume with the same "
                "model."
            )
        for name, weight in state.items():
            self.weights[name].copy_(weight)

    def _trained(self) -> list[tuple[str, Any]]:
        return [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
