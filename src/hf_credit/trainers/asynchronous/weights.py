"""Weights for the server: transferred through a shared folder, and compared with the served ones at the start."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from hf_credit.checkpoints import explain_disk_errors
from hf_credit.files import OwnFolder, remove_earlier

logger = logging.getLogger(__name__)

_FILE = "model-{:05d}.safetensors"
_SHARD_BYTES = 4 * 1024**3  # maximum held in memory before it is written
_MOST_NATS = 1e-2  # rounding of float32 on both sides
_MOST_NATS_ROUNDED = 0.2  # with fewer bits on either side


class FolderTransfer:
    """Transfers weights in files of a folder that trainer and server see under the same path.

    It implements TRL's `WeightTransferProtocol`. Each transfer writes a new folder, whose name the server learns once
    it is complete. The previous folder is removed once the server has loaded the new one; those of other runs stay.

    Args:
        server: receives the weights, as a `Server` does.
        folder: created if missing.
        own: whether it is of this run alone, so that what an earlier process left in it is removed.
    """

    def __init__(self, server: Any, folder: Path, own: bool = False) -> None:
        self.server = server
        self.folder, self.own = folder, own
        self._sent: list[OwnFolder] = []  # the last one is whole

    def init_weight_transfer(self) -> None:
        self.server.wait()
        self.server.refuse_adapters()
        with explain_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("weights-*") if self.own else ():
            remove_earlier(path, (_FILE.format(0),))
        if others := sorted(path.name for path in self.folder.glob("weights-*")):
            logger.warning("%s holds weights of other runs, which may be removed: %s", self.folder, ", ".join(others))

    def pause(self) -> None:
        self.server.ask("/pause?mode=keep")  # and keep pending requests

    def send_weights(self, iterator: Iterator[tuple[str, Tensor]]) -> None:
        with explain_disk_errors(self.folder):
            new = OwnFolder(self.folder, "weights-", mode=0o777, kept=True)
            try:
                for number, shard in enumerate(_shards(iterator)):
                    save_file(shard, new.path / _FILE.format(number), metadata={"format": "pt"})
            except BaseException:
                new.remove()
                raise
        self._sent.append(new)
        self.server.reload_weights(str(new.path))
        for before in self._sent[:-1]:
            before.remove()
        self._sent = [new]

    def resume(self) -> None:
        self.server.ask("/resume")

    def restore(self) -> None:
        """Makes a server that was away, and may be another process, load the last weights again."""
        if self._sent:
            self.server.reload_weights(str(self._sent[-1].path))

    def destroy(self) -> None:
        """Keeps the last weights, which the server may load again."""


def _shards(weights: Iterator[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    """Yields the weights in parts that fit in memory next to the model."""
    shard: dict[str, Tensor] = {}
    size = 0
    for name, weight in weights:
        shard[name] = weight.detach().to("cpu", copy=True).contiguous()
        size += shard[name].numel() * shard[name].element_size()
        if size >= _SHARD_BYTES:
            yield shard
            shard, size = {}, 0
    if shard:
        yield shard


def refuse_other_weights(trained: Tensor, served: Sequence[float], exact: bool) -> float:
    """Refuses a server with other weights than those that are trained.

    Args:
        trained: log-probabilities of the tokens of a text under the policy that is trained, in nats.
        served: the same under the served policy.
        exact: whether both sides compute in float32.

    Returns:
        The mean absolute difference, in nats.

    Raises:
        ValueError: it exceeds what rounding explains.
    """
    difference = (trained.double() - torch.tensor(served, dtype=torch.float64)).abs().mean().item()
    limit = _MOST_NATS if exact else _MOST_NATS_ROUNDED
    if not difference <= limit:  # NaN is refused, too
        raise ValueError(
            f"the server must serve the weights that are trained, got log-probabilities {difference:.2g} nats "
            f"apart, above {limit:g}; start the server anew with the model that is trained, and in its "
            "precision."
        )
    return difference
