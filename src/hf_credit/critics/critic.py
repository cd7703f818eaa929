"""Critics that predict the return, or a probability, from the text so far."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from accelerate import Accelerator
from peft import LoraConfig, PeftModel
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_credit.boundary import Range
from hf_credit.credit import balance_log_odds, class_weights, clipped_value_errors
from hf_credit.critics.backbone import ADAPTER, adapter_backbone, own_backbone, refuse_training_that
from hf_credit.critics.inputs import read_once
from hf_credit.critics.weights import ReplicatedWeights, Saved, weights_file
from hf_credit.options import Count, Options, Positive, filled_by_factory
from hf_credit.rollouts import Row
from hf_credit.rollouts.batches import micro_batches, pad_rows
from hf_credit.rollouts.method_context import CriticInput

_SEQUENCE_KEYS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")


@dataclass(frozen=True, kw_only=True)
class CriticConfig(Options):
    """The training of a critic. Default betas, weight decay and gradient norm are the policy's in paper C3, table 7.

    Args:
        learning_rate: the learning rate of AdamW, constant after the warm-up.
        warmup_steps: number of optimizer steps of linear warm-up from 0; 0 for none.
        betas: the betas of AdamW.
        weight_decay: the weight decay of AdamW.
        max_grad_norm: the norm to which gradients are clipped; `None` for no clipping.
        clip: maximum change of a value in one fit, in the unit of the reward, by `clipped_value_errors`; `None` for
            the plain squared error.
        passes: number of passes of a fit over its sequences.
        mini_batch_rows: sequences per optimizer step, over all processes; all of them if `None`.
        micro_batch_rows: sequences per forward pass on one process; it does not change results.
        gradient_checkpointing: whether a separate backbone recomputes activations in the backward pass. An adapter has
            the setting of the policy.
        seed: the seed of the order of sequences and of an adapter's weights.
        loss: `"squared"` for values, or `"cross_entropy"` for probabilities, with targets in [0, 1]. Cross-entropy
            gives both classes equal weight, and predictions are corrected for it.
    """

    learning_rate: Positive = 1e-5
    warmup_steps: Annotated[int, Range(0)] = 0
    betas: tuple[float, float] = filled_by_factory((0.9, 0.95))
    weight_decay: float = filled_by_factory(0.0)
    max_grad_norm: Positive | None = filled_by_factory(1.0)
    clip: Positive | None = 0.2
    passes: Count = 1
    mini_batch_rows: Count | None = None
    micro_batch_rows: Count = filled_by_factory(8)
    gradient_checkpointing: bool = filled_by_factory(True)
    seed: int = filled_by_factory(0)
    loss: Literal["squared", "cross_entropy"] = filled_by_factory("squared")
    owner: ClassVar[str] = "a critic"


class Critic(Saved):
    """A scalar head on the hidden states of a causal model, with a separate optimizer; replicated on every process.

    The value at a completion token is the head's output at the token before it, the value of the text that the token
    was sampled after. So values have the shape of a batch's completion tokens, and the value of a decision is that at
    its first token. A new critic predicts 0, or the probability 1/2.

    Args:
        backbone: a model id, folder or separate model; or a `LoraConfig` for an adapter on the policy's base, which
            needs the least memory.
        policy: the unwrapped policy.
        tokenizer: the tokenizer of the policy, with a padding token.
        accelerator: defines the device and communicates with the other processes.
        config: the training settings; the defaults if `None`.
        model_init_kwargs: arguments of `from_pretrained`, if `backbone` is an id or folder.
        name: the name of the adapter, if it is one.
        max_tokens: only the last so many tokens of an input are read; all if `None`. A position before them has the
            value after the first token that is read.

    Raises:
        ValueError: DeepSpeed, FSDP or fp16; a backbone with another vocabulary or with weights of the policy; or an
            adapter for a policy without one.
    """

    def __init__(
        self,
        backbone: str | PreTrainedModel | PeftModel | LoraConfig,
        policy: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        accelerator: Accelerator,
        config: CriticConfig | None = None,
        model_init_kwargs: dict[str, Any] | None = None,
        name: str = ADAPTER,
        max_tokens: int | None = None,
    ) -> None:
        refuse_training_that(accelerator.distributed_type, accelerator.mixed_precision)
        self.config = config or CriticConfig()
        self.accelerator = accelerator
        self.max_tokens = max_tokens
        self.pad_token_id: int = tokenizer.pad_token_id
        if isinstance(backbone, LoraConfig):
            self.backbone = adapter_backbone(backbone, policy, self.config.seed, name)
        else:
            checkpointing = self.config.gradient_checkpointing
            device = accelerator.device
            self.backbone = own_backbone(backbone, policy, tokenizer, device, checkpointing, model_init_kwargs)
        trained = {f"backbone.{name}": parameter for name, parameter in self.backbone.trained.items()}
        self.head, self.weights = head_and_weights(self.backbone.width, 1, trained, accelerator, self.config)
        self.fits = 0
        self.rate = 0.5  # running mean of the targets, for probabilities

    @torch.no_grad()
    def values(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns the value before each completion token, float32, of shape (rows, completion tokens); 0 on padding.

        It does not communicate with other processes.

        Args:
            batch: sequences with non-empty prompts, as from `pad_rows`; other entries are ignored.

        Raises:
            ValueError: a prompt is empty.
        """
        batch = self._sequences(batch)
        values = torch.zeros(batch["completion_ids"].shape, device=self.accelerator.device)
        batch["row"] = torch.arange(len(values), device=values.device)
        with self.backbone.reading(training=False):
            for part in self._parts(batch):
                width = part["completion_ids"].shape[1]
                predictions = self._predictions(self._forward(part))
                values[part["row"], :width] = torch.where(part["completion_mask"].bool(), predictions, 0)
        return values

    def __call__(self, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        """Returns the values at the positions of each input."""
        if not inputs:
            return []
        batch, places = self._batch(inputs)
        values = self.values(batch).tolist()
        return [tuple(values[row][column] for column in columns) for row, columns in places]

    def fit(
        self, batch: Mapping[str, Tensor], returns: Tensor, mask: Tensor, old_values: Tensor | None = None
    ) -> dict[str, float]:
        """Trains the critic on targets, by `clipped_value_errors` or cross-entropy; call it on all processes at once.

        All targets of a mini-batch have equal weight, across processes and micro-batches.

        Args:
            batch: the sequences of this process, as from `pad_rows`; may be empty.
            returns: the target at each completion token, in the unit of the reward, of the shape of `completion_ids`.
            mask: true (or 1) on tokens with a target, of the same shape.
            old_values: the result of `values` for the batch; computed if `None`.

        Returns:
            Metrics, the same on every process: the means `value_loss`, `clip_fraction` (the share of targets without a
            gradient) and `grad_norm`; the `explained_variance` of the targets by the old values, 0 for constant
            targets; and the number of `skipped_steps`, whose gradient was not finite.

        Raises:
            ValueError: the shapes differ, a target is not finite or out of range, or a prompt is empty.
        """
        device = self.accelerator.device
        batch = self._sequences(batch)
        old = self.values(batch) if old_values is None else old_values.to(device).float()
        tensors = {"returns": returns.to(device).float(), "mask": mask.to(device).bool(), "old_values": old}
        shape, shapes = tuple(batch["completion_ids"].shape), [tuple(tensor.shape) for tensor in tensors.values()]
        if any(other != shape for other in shapes):
            raise ValueError(
                f"returns, mask and old_values must have the shape of completion_ids, {shape}, got {shapes[0]}, "
                f"{shapes[1]} and {shapes[2]}; pass one entry for each completion token."
            )
        if not bool(tensors["returns"][tensors["mask"]].isfinite().all()):
            raise ValueError("a critic's targets must be finite, got NaN or infinity; remove them from the mask.")
        explained = self._explained_variance(**tensors)
        self._update_rate(tensors["returns"][tensors["mask"]])

        used = tensors["mask"].any(dim=1)
        rows = {name: one[used] for name, one in {**batch, **tensors}.items()}
        sums = torch.zeros(3, dtype=torch.float64, device=device)  # errors, clipped targets, targets
        norms: list[float] = []
        with self.backbone.reading(training=True):
            for chosen in self._mini_batches(len(rows["mask"])):
                norms.append(self._one_step({name: tensor[chosen] for name, tensor in rows.items()}, sums))
        self.fits += 1
        errors, clipped, targets = self.accelerator.reduce(sums, "sum").tolist()
        finite = [norm for norm in norms if math.isfinite(norm)]
        return {
            "value_loss": errors / max(targets, 1),
            "explained_variance": explained,
            "clip_fraction": clipped / max(targets, 1),
            "grad_norm": sum(finite) / max(len(finite), 1),
            "skipped_steps": float(len(norms) - len(finite)),
        }

    def learn(
        self, inputs: Sequence[CriticInput], targets: Sequence[Sequence[float]], values: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        """Trains the critic by `fit` on targets at the positions of inputs; call it on all processes at the same time.

        Args:
            inputs: the inputs of this process; may be empty.
            targets: the target at each position of each input.
            values: the earlier predictions at the same positions.

        Returns:
            The metrics of `fit`.
        """
        batch, places = self._batch(inputs)
        returns = torch.zeros(batch["completion_ids"].shape)
        old, mask = torch.zeros_like(returns), torch.zeros_like(returns, dtype=torch.bool)
        for (row, columns), of_input, known in zip(places, targets, values, strict=True):
            # What comes before the longest context that the critic reads shares its first column.
            last = {column: place for place, column in enumerate(columns)}
            own, kept = list(last), list(last.values())
            returns[row, own], old[row, own] = torch.tensor(of_input)[kept], torch.tensor(known)[kept]
            mask[row, own] = True
        return self.fit(batch, returns, mask, old)

    def _mini_batches(self, rows: int) -> Iterator[Tensor]:
        """The rows of this process in each step of all passes; all processes make equally many steps."""
        device = self.accelerator.device
        counts = self.accelerator.gather(torch.tensor([rows], device=device)).tolist()
        first = sum(counts[: self.accelerator.process_index])
        generator = torch.Generator().manual_seed(self.config.seed + 1_000_003 * self.fits)
        for _ in range(self.config.passes if sum(counts) else 0):
            order = torch.randperm(sum(counts), generator=generator)
            for part in order.split(self.config.mini_batch_rows or sum(counts)):
                yield (part[(part >= first) & (part < first + rows)] - first).to(device)

    def _one_step(self, rows: dict[str, Tensor], sums: Tensor) -> float:
        """Adds to the sums of this process, and returns the norm of the gradient."""
        total = self.accelerator.reduce(rows["mask"].sum(), "sum")
        for part in self._parts(rows):
            mask = part["mask"]
            outputs = self._forward(part)[mask]
            errors, clipped = self._errors(outputs, part["old_values"][mask], part["returns"][mask])
            (errors.sum() / total).backward()
            sums += torch.stack([errors.detach().sum().double(), clipped.sum().double(), mask.sum().double()])
        return self.weights.step(self.config.max_grad_norm)

    def _predictions(self, outputs: Tensor) -> Tensor:
        if self.config.loss == "squared":
            return outputs
        return torch.sigmoid(outputs - balance_log_odds(self.rate))

    def _errors(self, outputs: Tensor, old_values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        if self.config.loss == "squared":
            return clipped_value_errors(outputs, old_values, targets, self.config.clip)
        errors = nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
        return class_weights(targets, self.rate) * errors, torch.zeros_like(targets, dtype=torch.bool)

    def _update_rate(self, targets: Tensor) -> None:
        """Updates the mean of targets that are probabilities, with weight 1/10 for this fit."""
        if self.config.loss == "squared":
            return
        if bool(((targets < 0) | (targets > 1)).any()):
            raise ValueError(
                f"targets of a critic with cross-entropy must be in [0, 1], got {targets.min().item()} to "
                f"{targets.max().item()}; rescale them."
            )
        own = targets.double()
        total, count = self.accelerator.reduce(torch.stack([own.sum(), own.new_tensor(len(own))]), "sum").tolist()
        if count:
            share = 1.0 if self.rate == 0.5 and not self.fits else 0.1
            self.rate += share * (total / count - self.rate)

    def _explained_variance(self, returns: Tensor, mask: Tensor, old_values: Tensor) -> float:
        """1 - Var(returns - values) / Var(returns) over the targets of all processes."""
        targets = returns[mask].double()
        errors = targets - old_values[mask].double()
        sums = torch.stack([targets.new_tensor(len(targets)), targets.sum(), errors.sum()])
        count, target, error = self.accelerator.reduce(sums, "sum").unbind()
        squares = torch.stack([(targets - target / count).square().sum(), (errors - error / count).square().sum()])
        total, residual = self.accelerator.reduce(squares, "sum").tolist()
        return 1 - residual / total if total > 0 else 0.0

    def state(self) -> dict[str, Any]:
        return {"fits": self.fits, "rate": self.rate, **super().state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.fits, self.rate = state["fits"], state["rate"]
        super().load_state(state)

    def save(self, folder: str | Path, name: str = "critic") -> None:
        self.weights.save(weights_file(folder, name), rate=self.rate)

    def load(self, folder: str | Path, name: str = "critic") -> None:
        super().load(folder, name)
        with safe_open(weights_file(folder, name), "pt") as weights:  # type: ignore[no-untyped-call]
            numbers = weights.metadata() or {}
        self.rate = float(numbers.get("rate", self.rate))
        # Of targets that the version before could normalise.
        mean, scale = float(numbers.get("mean", 0.0)), float(numbers.get("scale", 1.0))
        self.head.weight.data.mul_(scale)
        self.head.bias.data.mul_(scale).add_(mean)

    def _sequences(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        sequences = {name: batch[name].to(self.accelerator.device) for name in _SEQUENCE_KEYS}
        if not bool(sequences["prompt_mask"].any(dim=1).all()):
            raise ValueError("the prompt of a critic's sequence must not be empty, got one without tokens; remove it.")
        return sequences

    def _batch(self, inputs: Sequence[CriticInput]) -> tuple[dict[str, Tensor], list[tuple[int, list[int]]]]:
        """Inputs as rows, by `read_once`, and of each input its row and the columns of its positions there. The
        completion of a row begins at the first position, since values precede their tokens."""
        read = list(map(self._shortened, inputs))
        texts, numbers = read_once(read)
        places = [(row, [at - texts[row].at[0] for at in one.at]) for one, row in zip(read, numbers, strict=True)]
        # The value after the last token needs another token, which is not read.
        rows = [Row.without_credit(one.ids[: one.at[0]], (*one.ids[one.at[0] :], self.pad_token_id)) for one in texts]
        return pad_rows(rows, self.pad_token_id) if rows else context_batch([], self.pad_token_id), places

    def _shortened(self, text: CriticInput) -> CriticInput:
        ids = text.ids if self.max_tokens is None else text.ids[-self.max_tokens :]
        removed = len(text.ids) - len(ids)
        return CriticInput(ids=ids, at=tuple(max(at - removed, 1) for at in text.at))

    def _parts(self, batch: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        return micro_batches(batch, self.config.micro_batch_rows) if len(batch["prompt_ids"]) else []

    def _forward(self, part: dict[str, Tensor]) -> Tensor:
        # No token follows the last one, so it is not read.
        ids = torch.cat([part["prompt_ids"], part["completion_ids"]], dim=1)[:, :-1]
        mask = torch.cat([part["prompt_mask"], part["completion_mask"]], dim=1)[:, :-1]
        with self.accelerator.autocast():
            hidden = self.backbone.hidden_states(ids, mask)
        width = part["completion_ids"].shape[1]
        with torch.autocast(hidden.device.type, enabled=False):
            return self.head(hidden[:, hidden.shape[1] - width :].float()).squeeze(-1)


def head_and_weights(
    width: int, outputs: int, trained: Mapping[str, nn.Parameter], accelerator: Accelerator, config: CriticConfig
) -> tuple[nn.Linear, ReplicatedWeights]:
    """Returns a new head, whose outputs are 0, and its weights together with other trained ones."""
    head = nn.Linear(width, outputs, device=accelerator.device, dtype=torch.float32)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    parameters = {**trained, **{f"head.{name}": parameter for name, parameter in head.named_parameters()}}
    settings = config.learning_rate, config.betas, config.weight_decay, config.warmup_steps
    return head, ReplicatedWeights(parameters, accelerator, *settings)


def context_batch(contexts: Sequence[Sequence[int]], pad_token_id: int) -> dict[str, Tensor]:
    """Returns a batch with one completion token per row, at which `Critic.values` is the value of the whole context.

    Args:
        contexts: the token ids of each context, at least one token each; may be empty.
    """
    if contexts:
        return pad_rows([Row.without_credit(tuple(ids), (pad_token_id,)) for ids in contexts], pad_token_id)
    return {name: torch.zeros(0, 1, dtype=torch.long) for name in _SEQUENCE_KEYS}
