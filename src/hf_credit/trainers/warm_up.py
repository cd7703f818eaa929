"""Supervised training on demonstrations, before a policy is trained by its own play."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from trl import SFTConfig, SFTTrainer

from hf_credit.noise import silence_known_warnings
from hf_credit.policies.demonstrations import IGNORED, Demonstration, supervised_rows
from hf_credit.trainers.callbacks import show_headlines

silence_known_warnings()

# Settings of TRL with another value than this would train on other tokens than a rollout has, with the reason.
_FIXED: Mapping[str, tuple[Any, str]] = {
    "packing": (False, "which joins rows"),
    "padding_free": (False, "which joins rows"),
    "assistant_only_loss": (False, "since the loss is on the replies already"),
    "chat_template_path": (None, "since the template must be that of the tokenizer"),
    "eos_token": (None, "since the end of a reply must be that of the tokenizer"),
}


class WarmUpTrainer(SFTTrainer):
    """TRL's `SFTTrainer` on demonstrations: the sequences that a later training has, with loss on the replies alone.

    The loss is the mean over tokens of the cross entropy with the token of the reply or, if all demonstrations have
    shares, with these. A sequence is never truncated.

    Args:
        model, args, **others: as for `SFTTrainer`. A sequence longer than `max_length` is an error; `None` allows any.
        demonstrations: to learn from, at least one; rendered with the tokenizer of the model.
        held_out: of other tasks, for the held-out loss.
        processing_class: the tokenizer of the model.

    Raises:
        ValueError: there is no demonstration, one is too long, or a setting would change the tokens.
    """

    _tag_names = ["trl", "hf-credit", "warm-up"]  # noqa: RUF012
    _name = "warm-up"

    def __init__(
        self,
        model: Any,
        args: SFTConfig,
        demonstrations: Sequence[Demonstration],
        held_out: Sequence[Demonstration] = (),
        *,
        processing_class: Any,
        **others: Any,
    ) -> None:
        for name, (value, reason) in _FIXED.items():
            if getattr(args, name) != value:
                raise ValueError(f"{name} must be {value} for a warm-up, got {getattr(args, name)!r}, {reason}.")
        args = copy.copy(args)
        args.dataset_kwargs, args.remove_unused_columns = {"skip_prepare_dataset": True}, False
        train, evaluated = (dataset_of(one, args.max_length) for one in (demonstrations, held_out))
        if train is None:
            raise ValueError("a warm-up must have a demonstration to learn from, got none; give more episodes.")
        super().__init__(
            model,
            args,
            data_collator=_Padded(processing_class.pad_token_id),
            train_dataset=train,
            eval_dataset=evaluated,
            processing_class=processing_class,
            **others,
        )
        show_headlines(self)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """As in TRL; with the shares of tokens, the cross entropy with these."""
        if "shares" not in inputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        learned = inputs["labels"][:, 1:] != IGNORED
        kept = learned.any(dim=0).nonzero()[:, 0]  # the positions that some row needs, as logits are large
        known = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        logits = model(**known, logits_to_keep=kept, use_cache=False).logits[learned[:, kept]]
        shares, count = inputs["shares"], learned.sum() if num_items_in_batch is None else num_items_in_batch
        logprobs = functional.log_softmax(logits.float(), dim=-1)[inputs["places"], inputs["tokens"]]
        loss = -(logprobs * shares).sum() / count
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes  # the count is of all processes, the gradient their mean
        return (loss, {}) if return_outputs else loss


def dataset_of(demonstrations: Sequence[Demonstration], max_length: int | None = None) -> Dataset | None:
    """Returns the rows of demonstrations (`supervised_rows`) as a dataset for `SFTTrainer`; `None` without any.

    Raises:
        ValueError: a row has more than `max_length` tokens.
    """
    rows = [row for one in demonstrations for row in supervised_rows(one)]
    longest = max((len(row["input_ids"]) for row in rows), default=0)
    if max_length is not None and longest > max_length:
        raise ValueError(
            f"a row must have at most max_length = {max_length} tokens, as none is truncated, got {longest}; raise "
            "it, or set it to None."
        )
    if not rows:
        return None
    names = [name for name in rows[0] if all(name in row for row in rows)]
    return Dataset.from_dict({name: [row[name] for row in rows] for name in names})


class _Padded:
    """Pads rows on the right, and joins their shares.

    Args:
        pad_token_id: the padding token.
    """

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, rows: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, torch.Tensor]:
        def padded(sequences: list[Any], value: int) -> torch.Tensor:
            return pad_sequence([torch.tensor(one) for one in sequences], batch_first=True, padding_value=value)

        ids = [row["input_ids"] for row in rows]
        batch = {
            "input_ids": padded(ids, self.pad_token_id),
            "attention_mask": padded([[1] * len(one) for one in ids], 0),
            "labels": padded([row["labels"] for row in rows], IGNORED),
        }
        if "shares" in rows[0]:
            counts, batch["tokens"], batch["shares"] = (
                torch.tensor([value for row in rows for value in row[name]]) for name in ("counts", "tokens", "shares")
            )
            batch["places"] = torch.repeat_interleave(torch.arange(len(counts)), counts)
        return batch
