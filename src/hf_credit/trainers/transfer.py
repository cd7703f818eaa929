"""What a transfer of weights to vLLM must leave as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from hf_credit.trainers.ranks import reshard


class FrozenBase:
    """Gives the weights below adapters back as they were after a transfer.

    TRL merges an adapter into them to send them, and unmerges it. In 16 bits w + d - d is not w, and the differences
    of all transfers would add up in weights that no checkpoint has. The copy is in the memory of the host, of each
    process its share.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._kept: dict[tuple[nn.Module, str], Tensor] = {}

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Context in which adapters may be merged and unmerged."""
        reshard(self.model)
        layers = {one.get_base_layer() for one in self.model.modules() if isinstance(one, BaseTunerLayer)}
        before = {
            (layer, name): weight
            for layer in layers
            for name, weight in layer.named_parameters(recurse=False)
            # ZeRO-3 merges into gathered copies, which it drops.
            if not (weight.requires_grad or weight.dtype.itemsize >= 4 or hasattr(weight, "ds_id"))
        }
        for place, weight in before.items():
            if place not in self._kept and weight.is_floating_point():
                self._kept[place] = _own(weight).to("cpu", copy=True)
        try:
            yield
        finally:
            for (layer, name), weight in before.items():
                setattr(layer, name, weight)  # merging replaces a quantised one
            for (layer, name), copy in self._kept.items():
                _own(getattr(layer, name)).copy_(copy)


def _own(weight: Tensor) -> Tensor:
    """The memory of a weight, or of this process's share of it."""
    return weight.to_local() if isinstance(weight, DTensor) else weight.data
