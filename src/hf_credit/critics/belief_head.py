"""The belief head: a linear probe of the policy's hidden states for each slot (paper CVT-RL, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from accelerate import Accelerator
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from hf_credit.critics.backbone import Backbone
from hf_credit.critics.critic import CriticConfig, context_batch, head_and_weights
from hf_credit.critics.inputs import context_inputs, read_once
from hf_credit.critics.weights import Saved
from hf_credit.rollouts.batches import micro_batches
from hf_credit.rollouts.method_context import CriticInput


class BeliefHead(Saved):
    """Predicts a distribution over the values of each slot from the policy's hidden state at the last token of a text.

    It does not train the policy. A new head predicts uniform distributions.

    Args:
        policy: unwrapped.
        accelerator: defines the device and communicates with the other processes.
        slots: number of values of each slot.
        max_tokens: only the last so many tokens of a text are read; all if `None`.
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
        self.head, self.weights = head_and_weights(self.backbone.width, sum(self.slots), {}, accelerator, config)

    @torch.no_grad()
    def __call__(self, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        """Returns the distributions of each input, concatenated over slots."""
        if not inputs:
            return []
        log_probabilities = self._log_probabilities(self.head(self._states(inputs)))
        return [tuple(own) for own in torch.cat(log_probabilities, dim=1).exp().tolist()]

    def learn(
        self, inputs: Sequence[CriticInput], targets: Sequence[Sequence[float]], values: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        """Trains the head by cross-entropy; call it on all processes at the same time.

        Args:
            inputs: the texts of this process.
            targets: the target distributions of each input, concatenated over slots; NaN in slots without a target.
            values: the earlier predictions; not used.

        Returns:
            Means over slots with a target, the same on every process: `loss` in nats, and `accuracy` of the most
            probable value; and the mean `grad_norm` over steps.
        """
        device = self.accelerator.device
        sums = torch.zeros(3, dtype=torch.float64, device=device)
        target = torch.tensor([list(own) for own in targets], device=device).reshape(len(inputs), sum(self.slots))
        mask = ~torch.stack([own.isnan().any(1) for own in target.split(self.slots, dim=1)])
        target = target.nan_to_num()
        count = self.accelerator.reduce(mask.sum(), "sum").item()
        if not count:
            return {"loss": 0.0, "accuracy": 0.0, "grad_norm": 0.0}
        norms = []
        states = self._states(inputs) if inputs else torch.zeros(0, self.backbone.width, device=device)
        for _ in range(self.config.passes):
            log_probabilities = self._log_probabilities(self.head(states))
            pairs = list(zip(target.split(self.slots, dim=1), log_probabilities, strict=True))
            errors = -torch.stack([(own * log).sum(1) for own, log in pairs])
            (errors.sum() / count).backward()  # type: ignore[no-untyped-call]
            correct = torch.stack([own.argmax(1) == log.argmax(1) for own, log in pairs]) & mask
            sums += torch.stack([errors.detach().sum().double(), correct.sum().double(), mask.sum().double()])
            norms.append(self.weights.step(self.config.max_grad_norm))
        loss, right, slots = self.accelerator.reduce(sums, "sum").tolist()
        return {"loss": loss / slots, "accuracy": right / slots, "grad_norm": sum(norms) / len(norms)}

    @torch.no_grad()
    def _states(self, inputs: Sequence[CriticInput]) -> Tensor:
        device = self.accelerator.device
        rows, numbers = read_once(context_inputs([one.ids[-(self.max_tokens or 0) :] for one in inputs]))
        row_of = torch.tensor(numbers)
        batch = context_batch([one.ids for one in rows], self.pad_token_id)
        batch["row"] = torch.arange(len(rows))
        states = torch.zeros(len(inputs), self.backbone.width, device=device)
        with self.backbone.reading(training=False):
            for part in micro_batches(batch, self.config.micro_batch_rows):
                with self.accelerator.autocast():
                    hidden = self.backbone.hidden_states(part["prompt_ids"].to(device), part["prompt_mask"].to(device))
                for row, own in zip(part["row"].tolist(), hidden, strict=True):
                    at = [at - len(rows[row].ids) - 1 for at in rows[row].at]  # from the end, as prompts are
                    states[row_of == row] = own[at].float()
        return states

    def _log_probabilities(self, outputs: Tensor) -> list[Tensor]:
        return [own.log_softmax(1) for own in outputs.split(self.slots, dim=1)]
