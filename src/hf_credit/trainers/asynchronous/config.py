"""The settings of `AsyncCreditTrainer`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hf_credit.trainers.asynchronous.trl_1_16 import AsyncGRPOConfig
from hf_credit.trainers.config import RunSettings, documented
from hf_credit.validators import one_of


@dataclass
@documented
class AsyncCreditConfig(RunSettings, AsyncGRPOConfig):
    """Settings of `AsyncCreditTrainer`: those of TRL's `AsyncGRPOConfig` and these.

    An update is one collection: the episodes that the method's collector plays for `instances_per_update` task rows.
    Each process reads its share in exactly `gradient_accumulation_steps` forward passes.

    Args:
        instances_per_update: task rows of an update; `None` takes `per_device_train_batch_size` x
            `gradient_accumulation_steps` x processes, as TRL does.
        shuffle_dataset: whether each pass over the task rows has a new order.
        mask_truncated_completions: whether replies that reached the length limit are left out of the loss.
        max_concurrent_episodes: maximum number of parallel requests to the server. More episodes are in progress:
            three for each request keep the server busy.
        concurrent_collections: number of collections that are played in parallel. With one, its longest episode
            decides how long an update waits.
        token_budget: maximum number of tokens of a forward pass, where a shared beginning of rows counts once; `None`
            takes the server's longest context. An update that does not fit takes no step.
        max_staleness: maximum age of the policy of a reply, in transfers of weights: updates, unless
            `weight_sync_steps` is above 1. A collection with one older reply is dropped completely, and its tasks are
            played again.
        weight_transfer: how the server gets the weights. `"trl"`: over NCCL or, if the server serves adapters, the
            adapter alone by its path. `"folder"`: files in a folder that trainer and server can both read.
        weight_folder: that folder; `None` takes one in `output_dir`.
        temperature: 1, the only value: a server gives the log-probabilities of given replies at temperature 1 only.

    Raises:
        ValueError: a setting is not possible.
    """

    instances_per_update: int | None = None
    shuffle_dataset: bool = True
    mask_truncated_completions: bool = False
    max_concurrent_episodes: int = 256
    concurrent_collections: int = 3
    weight_transfer: str = "trl"
    weight_folder: str | None = None

    def __post_init__(self) -> None:
        if self.deepspeed is not None or os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
            raise ValueError(
                "AsyncCreditTrainer trains with DDP or FSDP2, got DeepSpeed; launch it with FSDP2, or train with "
                "CreditTrainer."
            )
        self.refuse_impossible("asynchronous")
        one_of("weight_transfer", self.weight_transfer, ("trl", "folder"))
        if self.weight_folder is not None and self.weight_transfer != "folder":
            raise ValueError(f"weight_folder needs weight_transfer 'folder', got {self.weight_transfer!r}; set both.")
        super().__post_init__()
        for name in ("save_strategy", "eval_strategy", "logging_strategy"):
            if getattr(self, name) == "epoch":  # all updates are one, as it does not end before max_steps
                raise ValueError(f"{name} of asynchronous training must be 'steps' or 'no', got 'epoch'; set 'steps'.")
        if self.n_gpu > 1:
            raise ValueError(f"a process trains on one GPU, got {self.n_gpu}; use accelerate launch.")

    @property
    def generation_batch_size(self) -> int:
        """Task rows of an update."""
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        at_once = self.per_device_train_batch_size * self.gradient_accumulation_steps * processes
        return self.instances_per_update or at_once

    @property
    def folder_of_weights(self) -> Path:
        """The folder through which weights reach the server."""
        return Path(self.weight_folder or Path(str(self.output_dir), ".weights")).absolute()
