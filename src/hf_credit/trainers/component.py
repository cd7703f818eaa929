"""Parts of a trainer, and the protocol by which they know it. A trainer without a part does not import its module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hf_credit.rollouts import Chat
from hf_credit.trainers.callbacks import CheckpointCallback
from hf_credit.trainers.ranks import Ranks


class Seam(Protocol):
    """What a component may know of its trainer."""

    accelerator: Any
    args: Any
    chat: Chat
    model: Any
    ranks: Ranks
    roles: Sequence[str]
    state: Any

    def log_metric(self, name: str, value: float) -> None:
        """Records a metric of this update."""


class Component(CheckpointCallback):
    """A part that a trainer has if its settings ask for it, added as a callback. By default its members do nothing."""

    def checkpoint_state(self) -> dict[str, Any]:
        """What it needs of this process to resume: tensors and plain values, by names that no other part has."""
        return {}

    def load(self, folder: Path, state: Mapping[str, Any], same: bool) -> None:
        """Resumes from a checkpoint.

        Args:
            folder: the checkpoint.
            state: what the trainer and its components returned as `checkpoint_state`.
            same: whether `state` is of this process; else it is of the first one of another number of processes.
        """

    def save(self, folder: Path) -> None:
        """Saves what belongs to the policy next to it, on the main process."""
