"""What a policy's hidden states let one believe: a linear head for each slot (paper CVT-RL, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from accelerate import Accelerator
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_credit.critics.backbone import Backbone
from hf_credit.critics.critic import CriticConfig, context_batch
from hf_credit.critics.weights import ReplicatedWeights, Saved
from hf_credit.rollouts.batches import micro_batches
from hf_credit.rollouts.method_context import CriticInput


class BeliefHead(Saved):
    """Distributions over the values of slots, read off the policy's last hidden state of a text.

    The policy is not trained by it: it reads what is there. A new head believes all values alike.

    Args:
        policy: whose states are read, unwrapped.
        pad_token_id: fills gaps.
        accelerator: knows the device and the other processes.
        config: how it is trained.
        slots: how many values each slot has.
        max_tokens: of a text the last so many are read; all if `None`.
    """

    def __init__(
        self,
        policy: PreTrainedModel | PeftModel,
        pad_token_id: int,
        accelerator: Accelerator,
        config: CriticConfig,
        slots: Sequence[int],
        max_tokens: int | None = None,
    ) -> None:
        self.config = config
        self.accelerator = accelerator
        self.pad_token_id = pad_token_id
        self.slots = tuple(slots)
        self.max_tokens = max_tokens
        self.backbone = Backbone(policy)
        self.head = nn.Linear(self.backbone.width, sum(self.slots), device=accelerator.device, dtype=torch.float32)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.weights = ReplicatedWeights(
            {f"head.{name}": parameter for name, parameter in self.head.named_parameters()},
            accelerator,
            config.learning_rate,
            config.betas,
            config.weight_decay,
            config.warmup_steps,
        )

    @torch.no_grad()
    def __call__(self, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        """The distributions of each input, all of it read, one slot after the other."""
        if not inputs:
            return []
        logs = self._log_probabilities(self.head(self._states(inputs)))
        return [tuple(own) for own in torch.cat(logs, dim=1).exp().tolist()]

    def learn(
        self, inputs: Sequence[CriticInput], targets: Sequence[Sequence[float]], values: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        """Moves the distributions towards others, by cross-entropy; called on all processes at the same time.

        Args:
            inputs: as they were read.
            targets: the distributions there should be, one slot after the other; NaN in a slot that has none.
            values: what was said before; not used.

        Returns:
            The same on every process: `loss`, in nats a slot that has one; `accuracy`, of its likeliest value; and
            `grad_norm`.
        """
        device = self.accelerator.device
        sums = torch.zeros(3, dtype=torch.float64, device=device)
        wanted = torch.tensor([list(own) for own in targets], device=device).reshape(len(inputs), sum(self.slots))
        there = ~torch.stack([own.isnan().any(1) for own in wanted.split(self.slots, dim=1)])
        wanted = wanted.nan_to_num()
        every = self.accelerator.reduce(there.sum(), "sum").item()
        if not every:
            return {"loss": 0.0, "accuracy": 0.0, "grad_norm": 0.0}
        norms = []
        states = self._states(inputs) if inputs else torch.zeros(0, self.backbone.width, device=device)
        for _ in range(self.config.passes):
            logs = self._log_probabilities(self.head(states))
            pairs = list(zip(wanted.split(self.slots, dim=1), logs, strict=True))
            errors = -torch.stack([(own * log).sum(1) for own, log in pairs])
            (errors.sum() / every).backward()  # type: ignore[no-untyped-call]
            right = torch.stack([own.argmax(1) == log.argmax(1) for own, log in pairs]) & there
            sums += torch.stack([errors.detach().sum().double(), right.sum().double(), there.sum().double()])
            norms.append(self.weights.step(self.config.max_grad_norm))
        loss, right_ones, slots = self.accelerator.reduce(sums, "sum").tolist()
        return {"loss": loss / slots, "accuracy": right_ones / slots, "grad_norm": sum(norms) / len(norms)}

    @torch.no_grad()
    def _states(self, inputs: Sequence[CriticInput]) -> Tensor:
        """The last hidden state of each input."""
        texts = [one.ids if self.max_tokens is None else one.ids[-self.max_tokens :] for one in inputs]
        device = self.accelerator.device
        batch = {name: value.to(device) for name, value in context_batch(texts, self.pad_token_id).items()}
        batch["row"] = torch.arange(len(texts), device=device)
        found = torch.zeros(len(texts), self.backbone.width, device=device)
        with self.backbone.reading(training=False):
            for part in micro_batches(batch, self.config.micro_batch_rows):
                with self.accelerator.autocast():
                    hidden = self.backbone.hidden_states(part["prompt_ids"], part["prompt_mask"])
                found[part["row"]] = hidden[:, -1].float()
        return found

    def _log_probabilities(self, outputs: Tensor) -> list[Tensor]:
        return [own.log_softmax(1) for own in outputs.split(self.slots, dim=1)]
