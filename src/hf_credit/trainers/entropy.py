"""The entropy bonus of the loss, whose weight may follow the policy's entropy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from hf_credit.credit import next_entropy_coefficient
from hf_credit.trainers.component import Component, Seam
from hf_credit.trainers.metrics import LossMetrics


class EntropyBonus(Component):
    """Rewards entropy in the loss, with the settings of TRL and its metrics.

    Args:
        trainer: of the policy.

    Attributes:
        weight: of the entropy in the next optimizer step.
        last: mean entropy of the last optimizer step, in nats; there is no adaptive bonus before the first.
    """

    def __init__(self, trainer: Seam) -> None:
        self.trainer, self.args = trainer, trainer.args
        self.weight = float(self.args.entropy_coef)
        self.last = math.inf
        self._of_step = LossMetrics()

    def added(self, losses: Tensor, entropy: Tensor, mask: Tensor, metrics: LossMetrics, training: bool) -> Tensor:
        """The losses of tokens less their bonus, all of one shape; `mask` is 1 on tokens in the loss."""
        metrics.add("policy_loss", losses, mask)
        if training and self.args.use_adaptive_entropy:
            self._of_step.add("entropy", entropy, mask)
        gated = self.args.use_adaptive_entropy and self.last > self.args.entropy_target
        return losses - (0.0 if gated else self.weight) * entropy

    def end_step(self) -> None:
        """Sets the weight for the next optimizer step. Called on every process."""
        args = self.args
        taken = self._of_step.taken(self.trainer.accelerator) if args.use_adaptive_entropy else {}
        if "entropy" in taken:  # a step without tokens has none
            self.last = taken["entropy"]
            bounds = (args.entropy_coef_delta, args.entropy_coef_min, args.entropy_coef_max)
            self.weight = next_entropy_coefficient(self.weight, self.last, args.entropy_target, *bounds)
        self.trainer.log_metric("entropy_coef", self.weight)

    def checkpoint_state(self) -> dict[str, Any]:
        return {"last_entropy": self.last, "entropy_coef": self.weight}

    def load(self, folder: Path, state: Mapping[str, Any], same: bool) -> None:
        self.last = state.get("last_entropy", self.last)  # a run without the bonus has none
        self.weight = state.get("entropy_coef", self.weight)
