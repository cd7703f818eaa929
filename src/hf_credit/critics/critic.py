"""A critic: how much an episode will still pay, estimated from the text so far."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from peft import LoraConfig, PeftModel
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_credit.credit import balance_log_odds, class_weights, clipped_value_errors
from hf_credit.critics.backbone import ADAPTER, adapter_backbone, own_backbone, refuse_training_that
from hf_credit.critics.weights import ReplicatedWeights, Saved, weights_file
from hf_credit.rollouts import Row
from hf_credit.rollouts.batches import micro_batches, pad_rows
from hf_credit.rollouts.method_context import CriticInput
from hf_credit.validators import finite_number, one_of, whole_number

LOSSES = ("squared", "cross_entropy")
_NUMBERS = ("rate", "mean", "scale")
_SEQUENCE_KEYS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")


@dataclass(frozen=True, kw_only=True)
class CriticConfig:
    """How a critic is trained. Betas, weight decay and gradient norm are those of paper C3, table 7, for the policy.

    Attributes:
        learning_rate: of its own AdamW, constant but for a warm-up.
        warmup_steps: its first optimizer steps, over which the learning rate rises evenly from 0; 0 for none.
        betas: of AdamW.
        weight_decay: of AdamW.
        max_grad_norm: to which its gradient is clipped; `None` leaves it.
        clip: how far one fit may move a value, in the unit of the reward; `None` is the plain squared error.
        passes: how often one fit goes over its sequences, at most.
        past_updates: how many earlier updates' sequences a fit of `learn` goes over again beside its own.
        held_out: the share of each update's sequences, its last ones, that no step learns from, in [0, 1): a fit ends
            with the first pass that does not lower their squared error. With 0 it makes all passes.
        whiten: whether targets are learned in units of their spread around their mean, over about the last ten fits
            (PopArt, van Hasselt et al. 2016), so that the learning rate means the same whatever the reward's unit is.
            Of the squared loss.
        mini_batch_rows: sequences of an optimizer step, over all processes; `None` takes all of them at once.
        micro_batch_rows: sequences of a forward pass, on one process. Changes no result.
        gradient_checkpointing: whether a backbone of its own computes activations anew in the backward pass. An
            adapter does as the policy does.
        seed: of the order of sequences and of an adapter's weights.
        loss: `"squared"`, of values in any unit, or `"cross_entropy"`, of probabilities, which targets then are. Its
            classes weigh the same, however rare one is, and what that adds to the log-odds is taken off again.
    """

    learning_rate: float = 1e-5
    warmup_steps: int = 0
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: float | None = 1.0
    clip: float | None = 0.2
    passes: int = 1
    past_updates: int = 0
    held_out: float = 0.0
    whiten: bool = False
    mini_batch_rows: int | None = None
    micro_batch_rows: int = 8
    gradient_checkpointing: bool = True
    seed: int = 0
    loss: str = "squared"

    def __post_init__(self) -> None:
        one_of("loss of a critic", self.loss, LOSSES)
        finite_number("held_out of a critic", self.held_out, 0, below=1)
        for name in ("warmup_steps", "past_updates"):
            whole_number(f"{name} of a critic", getattr(self, name), 0)
        for name in ("passes", "mini_batch_rows", "micro_batch_rows"):
            value = getattr(self, name)
            if value is not None:
                whole_number(f"{name} of a critic", value, 1)
        for name in ("learning_rate", "max_grad_norm", "clip"):
            value = getattr(self, name)
            if value is not None:
                finite_number(f"{name} of a critic", value, above=0)


@dataclass(frozen=True)
class _Sequences:
    """What an update gave a critic to learn from: inputs, their targets, and which of them are held out."""

    inputs: Sequence[CriticInput]
    targets: Sequence[Sequence[float]]
    held_out: Sequence[bool]

    def state(self) -> dict[str, Any]:
        """Tensors in place of the long tuples."""
        ids = [torch.tensor(one.ids, dtype=torch.int32) for one in self.inputs]
        return {"ids": ids, "at": [one.at for one in self.inputs], "targets": self.targets, "held": self.held_out}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> _Sequences:
        """From its state."""
        pairs = zip(state["ids"], state["at"], strict=True)
        inputs = [CriticInput(ids=tuple(ids.tolist()), at=tuple(at)) for ids, at in pairs]
        return cls(inputs, state["targets"], state["held"])


class Critic(Saved):
    """A scalar head on a causal model's hidden states, with an optimizer of its own; a copy on every process.

    The value at a completion token is what the head says at the token before it: the value of the text that the token
    was chosen on. So the values of a batch of rows lie beside its tokens, masks and advantages, and the value of a
    decision is that at its first token. A new critic says 0 everywhere.

    Args:
        backbone: a model id, folder or model of its own; or a `LoraConfig`: an adapter named `critic` beside the
            policy's own, which is the cheapest.
        policy: the policy that it judges, unwrapped.
        tokenizer: the policy's, with a padding token.
        accelerator: knows the device and the other processes.
        config: how it is trained.
        model_init_kwargs: for `from_pretrained`, if `backbone` is an id.
        name: of its adapter, if it is one.
        max_tokens: of a reading it reads the last so many; all if `None`. A place that is cut off has the value of the
            first token that is left.

    Raises:
        ValueError: DeepSpeed, FSDP or fp16; a backbone of another vocabulary or that shares the policy's weights; an
            adapter beside a policy without one.
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
        self.head = nn.Linear(self.backbone.width, 1, device=accelerator.device, dtype=torch.float32)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.weights = ReplicatedWeights(
            {
                **{f"backbone.{name}": parameter for name, parameter in self.backbone.trained.items()},
                **{f"head.{name}": parameter for name, parameter in self.head.named_parameters()},
            },
            accelerator,
            self.config.learning_rate,
            self.config.betas,
            self.config.weight_decay,
            self.config.warmup_steps,
        )
        self.fits = 0
        self.rate = 0.5  # how often the event occurs whose probability it says, in the targets so far
        self.mean, self.scale = 0.0, 1.0  # of the targets, in whose unit a whitened head speaks
        self._past: list[_Sequences] = []

    # What it says -----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def values(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The value before each completion token, float32, of shape (rows, completion tokens); 0 on padding.

        Asks nothing of other processes.

        Args:
            batch: sequences as `pad_rows` gives them, each with a context; what else is in it is ignored.

        Raises:
            ValueError: a sequence has no context.
        """
        batch = self._sequences(batch)
        values = torch.zeros(batch["completion_ids"].shape, device=self.accelerator.device)
        batch["row"] = torch.arange(len(values), device=values.device)
        with self.backbone.reading(training=False):
            for part in self._parts(batch):
                width = part["completion_ids"].shape[1]
                said = self._said(self._forward(part))
                values[part["row"], :width] = torch.where(part["completion_mask"].bool(), said, 0)
        return values

    def context_values(self, contexts: Sequence[Sequence[int]]) -> Tensor:
        """The value of each context, at its last token, float32, of shape (contexts,)."""
        return self.values(context_batch(contexts, self.pad_token_id))[:, 0]

    def __call__(self, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        """The values at the places of each input."""
        if not inputs:
            return []
        values = self.values(self._batch(inputs)).tolist()
        pairs = zip(values, inputs, strict=True)
        return [tuple(own[place] for place in self._places(reading)) for own, reading in pairs]

    # How it learns ----------------------------------------------------------------------------------------------

    def fit(
        self,
        batch: Mapping[str, Tensor],
        returns: Tensor,
        mask: Tensor,
        old_values: Tensor | None = None,
        held_out: Tensor | None = None,
    ) -> dict[str, float]:
        """Moves the values towards their targets, by `clipped_value_loss`. Called on all processes at the same time.

        Every target of a mini-batch weighs the same, on whichever process and in whichever micro-batch it is.

        Args:
            batch: the sequences of this process, as `pad_rows` gives them; there may be none.
            returns: the target at each completion token, finite where there is one, in the unit of the reward.
            mask: true (or 1) where there is a target; of one shape with `returns`.
            old_values: what `values` gave for the batch; asked for anew if `None`.
            held_out: true for the sequences that say when to stop, of shape (sequences,); `None` for none.

        Returns:
            The same on every process: `value_loss`, `clip_fraction` (of the targets, those without a gradient) and
            `grad_norm` as means over the steps, `explained_variance` of the targets by the old values (0 if all
            targets are alike), `skipped_steps`, whose gradient was not finite, and, where some are held out, `passes`
            that were made and `held_out_loss` after them.

        Raises:
            ValueError: shapes differ, a target is not finite, or a sequence has no context.
        """
        device = self.accelerator.device
        batch = self._sequences(batch)
        old = self.values(batch) if old_values is None else old_values.to(device).float()
        tensors = {"returns": returns.to(device).float(), "mask": mask.to(device).bool(), "old_values": old}
        shape, shapes = tuple(batch["completion_ids"].shape), [tuple(tensor.shape) for tensor in tensors.values()]
        if any(other != shape for other in shapes):
            raise ValueError(
                f"returns, mask and old_values must have one entry for each of {shape} completion tokens, got "
                f"{shapes[0]}, {shapes[1]} and {shapes[2]}; lay them out as the values are."
            )
        if not bool(tensors["returns"][tensors["mask"]].isfinite().all()):
            raise ValueError("a critic's targets must be finite, got NaN or infinity; leave them out of the mask.")
        explained = self._explained_variance(**tensors)
        self._count(tensors["returns"][tensors["mask"]])
        if self.config.whiten and not self.fits:  # it says the mean from here on, from which the clip is counted
            tensors["old_values"] = self.values(batch)

        used = tensors["mask"].any(dim=1)
        kept = torch.zeros_like(used) if held_out is None else held_out.to(device).bool()
        every = {**batch, **tensors}
        rows, held = ({name: one[which] for name, one in every.items()} for which in (used & ~kept, used & kept))
        sums = torch.zeros(3, dtype=torch.float64, device=device)  # of errors, of clipped targets, of targets
        norms: list[float] = []
        passes, least = 0, self._held_out_error(held)
        for steps in self._mini_batches(len(rows["mask"])):
            with self.backbone.reading(training=True):
                for chosen in steps:
                    norms.append(self._one_step({name: tensor[chosen] for name, tensor in rows.items()}, sums))
            passes += 1
            before, least = least, self._held_out_error(held)
            if least is not None and before is not None and least >= before:
                break
        self.fits += 1
        errors, clipped, targets = self.accelerator.reduce(sums, "sum").tolist()
        finite = [norm for norm in norms if math.isfinite(norm)]
        return {
            "value_loss": errors / max(targets, 1),
            "explained_variance": explained,
            "clip_fraction": clipped / max(targets, 1),
            "grad_norm": sum(finite) / max(len(finite), 1),
            "skipped_steps": float(len(norms) - len(finite)),
            **({} if least is None else {"passes": float(passes), "held_out_loss": least}),
        }

    @torch.no_grad()
    def _held_out_error(self, held: dict[str, Tensor]) -> float | None:
        """The mean squared error on what is held out, over all processes; `None` where nothing is."""
        if not self.config.held_out:
            return None
        sums = torch.zeros(2, dtype=torch.float64, device=self.accelerator.device)
        if len(held["mask"]):
            values, mask = self.values(held), held["mask"]
            errors = (values[mask] - held["returns"][mask]).double().square()
            sums += torch.stack([errors.sum(), errors.new_tensor(len(errors))])
        total, count = self.accelerator.reduce(sums, "sum").tolist()
        return total / count if count else None

    def learn(
        self, inputs: Sequence[CriticInput], targets: Sequence[Sequence[float]], values: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        """`fit` with a target at each place of the inputs; called on all processes, also on one without inputs.

        Args:
            inputs: as they were read.
            targets: the value there should be at each place of each.
            values: what was said there before.
        """
        held = round(self.config.held_out * len(inputs))
        own = _Sequences(inputs, [list(one) for one in targets], [False] * (len(inputs) - held) + [True] * held)
        learned = self._learn_all([*self._past, own], values)
        self._past = [*self._past, own][-self.config.past_updates :] if self.config.past_updates else []
        return learned

    def _learn_all(self, updates: Sequence[_Sequences], values: Sequence[Sequence[float]]) -> dict[str, float]:
        """`fit` over several updates, whose last is the new one and has these values."""
        *past, new = updates
        earlier = [text for one in past for text in one.inputs]
        said = [*self(earlier), *values]
        inputs = [*earlier, *new.inputs]
        targets = [target for one in updates for target in one.targets]
        held = torch.tensor([flag for one in updates for flag in one.held_out], dtype=torch.bool)
        batch = self._batch(inputs) if inputs else context_batch([], self.pad_token_id)
        wanted = torch.zeros(batch["completion_ids"].shape)
        old, mask = torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
        for row, reading in enumerate(inputs):
            for place, target, value in zip(self._places(reading), targets[row], said[row], strict=True):
                wanted[row, place], old[row, place], mask[row, place] = target, value, True
        learned = self.fit(batch, wanted, mask, old, held)
        if self.config.past_updates:  # of the new targets alone: nothing was learned from them before
            device, first = self.accelerator.device, len(earlier)
            explained = self._explained_variance(
                returns=wanted[first:].to(device), mask=mask[first:].to(device), old_values=old[first:].to(device)
            )
            learned["explained_variance"] = explained
        return learned

    def fit_contexts(
        self, contexts: Sequence[Sequence[int]], returns: Tensor, old_values: Tensor | None = None
    ) -> dict[str, float]:
        """`fit` with one target for each context, at its last token."""
        batch = context_batch(contexts, self.pad_token_id)
        old = None if old_values is None else old_values[:, None]
        return self.fit(batch, returns[:, None], torch.ones_like(returns[:, None]), old)

    def _mini_batches(self, rows: int) -> Iterator[list[Tensor]]:
        """Which rows of this process each step of a pass takes; all processes make as many steps."""
        device = self.accelerator.device
        counts = self.accelerator.gather(torch.tensor([rows], device=device)).tolist()
        first = sum(counts[: self.accelerator.process_index])
        generator = torch.Generator().manual_seed(self.config.seed + 1_000_003 * self.fits)
        for _ in range(self.config.passes if sum(counts) else 0):
            order = torch.randperm(sum(counts), generator=generator)
            parts = order.split(self.config.mini_batch_rows or sum(counts))
            yield [(part[(part >= first) & (part < first + rows)] - first).to(device) for part in parts]

    def _one_step(self, rows: dict[str, Tensor], sums: Tensor) -> float:
        """One optimizer step; the norm of its gradient. Adds to the sums of this process."""
        total = self.accelerator.reduce(rows["mask"].sum(), "sum")
        for part in self._parts(rows):
            known = part["mask"]
            values = self._forward(part)[known]
            errors, clipped = self._errors(values, part["old_values"][known], part["returns"][known])
            (errors.sum() / total).backward()
            sums += torch.stack([errors.detach().sum().double(), clipped.sum().double(), known.sum().double()])
        return self.weights.step(self.config.max_grad_norm)

    def _said(self, outputs: Tensor) -> Tensor:
        """What it says, of what the head puts out."""
        if self.config.loss == "squared":
            return self.mean + self.scale * outputs
        return torch.sigmoid(outputs - balance_log_odds(self.rate))

    def _errors(self, outputs: Tensor, old_values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        if self.config.loss == "squared":
            errors, clipped = clipped_value_errors(self._said(outputs), old_values, targets, self.config.clip)
            return errors / self.scale**2, clipped
        errors = nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
        return class_weights(targets, self.rate) * errors, torch.zeros_like(targets, dtype=torch.bool)

    def _count(self, targets: Tensor) -> None:
        """Remembers the targets' moments, or how often their event occurs, an update's targets weighing a tenth."""
        squared = self.config.loss == "squared"
        if squared and not self.config.whiten:
            return
        if not squared and bool(((targets < 0) | (targets > 1)).any()):
            raise ValueError(
                f"a critic of probabilities must have targets in [0, 1], got {targets.min().item()} to "
                f"{targets.max().item()}; rescale them."
            )
        own = targets.double()
        sums = torch.stack([own.sum(), own.square().sum(), own.new_tensor(len(own))])
        total, squares, every = self.accelerator.reduce(sums, "sum").tolist()
        if every and squared:
            self._whiten_by(total / every, squares / every)
        elif every:
            share = 1.0 if self.rate == 0.5 and not self.fits else 0.1
            self.rate += share * (total / every - self.rate)

    @torch.no_grad()
    def _whiten_by(self, mean: float, square: float) -> None:
        """Moves mean and scale towards an update's, and the head so that it still says what it said."""
        share = max(0.1, 1 / (self.fits + 1))
        before = self.mean, self.scale
        spread = self.scale**2 + self.mean**2 if self.fits else 0.0
        self.mean += share * (mean - self.mean)
        variance = spread + share * (square - spread) - self.mean**2
        self.scale = math.sqrt(variance) if variance > 1e-8 else 1.0
        if self.fits:  # a new head says the mean at once
            self.head.weight.mul_(before[1] / self.scale)
            self.head.bias.copy_((before[0] + before[1] * self.head.bias - self.mean) / self.scale)

    def _explained_variance(self, returns: Tensor, mask: Tensor, old_values: Tensor) -> float:
        """1 - Var(returns - values) / Var(returns) over the targets of all processes."""
        targets = returns[mask].double()
        errors = targets - old_values[mask].double()
        sums = torch.stack([targets.new_tensor(len(targets)), targets.sum(), errors.sum()])
        count, target, error = self.accelerator.reduce(sums, "sum").unbind()
        squares = torch.stack([(targets - target / count).square().sum(), (errors - error / count).square().sum()])
        spread, left = self.accelerator.reduce(squares, "sum").tolist()
        return 1 - left / spread if spread > 0 else 0.0

    # What it is made of -----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        numbers = {name: getattr(self, name) for name in ("fits", *_NUMBERS)}
        return {**numbers, "past": [one.state() for one in self._past], **super().state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.fits = state["fits"]
        self._take_numbers(state)
        self._past = [_Sequences.of(one) for one in state.get("past", ())]
        super().load_state(state)

    def save(self, folder: str | Path, name: str = "critic") -> None:
        self.weights.save(weights_file(folder, name), **{number: getattr(self, number) for number in _NUMBERS})

    def load(self, folder: str | Path, name: str = "critic") -> None:
        super().load(folder, name)
        with safe_open(weights_file(folder, name), "pt") as weights:  # type: ignore[no-untyped-call]
            self._take_numbers(weights.metadata() or {})

    def _take_numbers(self, numbers: Mapping[str, Any]) -> None:
        """What older files lack stays as it is."""
        for name in _NUMBERS:
            setattr(self, name, float(numbers.get(name, getattr(self, name))))

    # How it reads -----------------------------------------------------------------------------------------------

    def _sequences(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        sequences = {name: batch[name].to(self.accelerator.device) for name in _SEQUENCE_KEYS}
        if not bool(sequences["prompt_mask"].any(dim=1).all()):
            raise ValueError("a sequence must have a context for a critic to read, got an empty prompt; leave it out.")
        return sequences

    def _batch(self, inputs: Sequence[CriticInput]) -> dict[str, Tensor]:
        """Inputs as rows whose completions begin at their first place: values stand before their tokens."""
        rows = []
        for reading in inputs:
            ids, first = self._cut(reading)
            # Behind the last token a value stands before a token that nobody reads.
            rows.append(Row.without_credit(ids[:first], (*ids[first:], self.pad_token_id)))
        return pad_rows(rows, self.pad_token_id)

    def _places(self, reading: CriticInput) -> list[int]:
        """Where in the completion of its row the places of an input are."""
        ids, first = self._cut(reading)
        gone = len(reading.ids) - len(ids)
        return [max(at - gone, 1) - first for at in reading.at]

    def _cut(self, reading: CriticInput) -> tuple[tuple[int, ...], int]:
        """What is read, and how much of it before the first place."""
        ids = reading.ids if self.max_tokens is None else reading.ids[-self.max_tokens :]
        return ids, max(reading.at[0] - (len(reading.ids) - len(ids)), 1)

    def _parts(self, batch: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        return micro_batches(batch, self.config.micro_batch_rows) if len(batch["prompt_ids"]) else []

    def _forward(self, part: dict[str, Tensor]) -> Tensor:
        """The value before each completion token, float32."""
        # Nothing is chosen after the last token, so it is not read.
        ids = torch.cat([part["prompt_ids"], part["completion_ids"]], dim=1)[:, :-1]
        mask = torch.cat([part["prompt_mask"], part["completion_mask"]], dim=1)[:, :-1]
        with self.accelerator.autocast():
            hidden = self.backbone.hidden_states(ids, mask)
        width = part["completion_ids"].shape[1]
        with torch.autocast(hidden.device.type, enabled=False):
            return self.head(hidden[:, hidden.shape[1] - width :].float()).squeeze(-1)


def context_batch(contexts: Sequence[Sequence[int]], pad_token_id: int) -> dict[str, Tensor]:
    """A batch with one position a row, at which `Critic.values` has the value of the whole context.

    Args:
        contexts: token ids, at least one each; there may be no contexts.
        pad_token_id: fills the gaps.
    """
    if contexts:
        return pad_rows([Row.without_credit(ids, (pad_token_id,)) for ids in contexts], pad_token_id)
    return {name: torch.zeros(0, 1, dtype=torch.long) for name in _SEQUENCE_KEYS}
