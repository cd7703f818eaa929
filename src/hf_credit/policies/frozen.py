"""A copy of a policy as it was, beside the one that goes on learning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class FrozenCopy:
    """The trained weights of a policy at one moment; with LoRA those of the adapters, on shards those of this process.

    The base weights, which do not change, are shared.

    Args:
        model: the policy.
        dtype: of the copy; that of each weight if `None`. One that follows in small steps needs float32: in bfloat16
            they round to nothing.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype | None = None) -> None:
        self.model = model
        self.weights = {name: one.detach().to(dtype or one.dtype, copy=True) for name, one in self._trained()}

    @torch.no_grad()
    def refresh(self) -> None:
        """Takes the weights as they are now."""
        for name, parameter in self._trained():
            self.weights[name].copy_(parameter)

    @torch.no_grad()
    def follow(self, decay: float) -> None:
        """Moves towards the weights as they are now: decay of its own, and the rest of theirs.

        Args:
            decay: in (0, 1).
        """
        for name, parameter in self._trained():
            self.weights[name].lerp_(parameter.to(self.weights[name].dtype), 1 - decay)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within, the policy has the weights of the copy; afterwards its own again, after an error as well."""
        own = {name: parameter.data for name, parameter in self._trained()}
        try:
            for name, parameter in self._trained():
                parameter.data = self.weights[name].to(parameter.dtype)
            yield
        finally:
            for name, parameter in self._trained():
                parameter.data = own[name]

    def state(self) -> dict[str, Tensor]:
        """The weights, for a checkpoint."""
        return dict(self.weights)

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Takes back what `state` gave.

        Raises:
            ValueError: it is of another policy.
        """
        if state.keys() != self.weights.keys():
            raise ValueError("a frozen copy must be of this policy, got other weights; resume with the same model.")
        for name, weight in state.items():
            self.weights[name].copy_(weight)

    def _trained(self) -> list[tuple[str, Any]]:
        return [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
