"""Log-probabilities of rows, each read by itself or with what rows begin with in common read once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_credit.policies.prefix_cache import reads_in_parts
from hf_credit.rollouts.batches import token_order, unpadded
from hf_credit.trainers.packing import Runs, Tree


class Scores(NamedTuple):
    """Values of the completion tokens of rows, of shape (rows, completion tokens).

    Attributes:
        logprobs: log-probability of each token, 0 on padding.
        entropy: of the distribution at each token, if the head computes it.
        states: the last hidden state before each token, of shape (rows, completion tokens, width), if requested.
    """

    logprobs: Tensor
    entropy: Tensor | None
    states: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Packed:
    """Rows packed into sequences, each a `Tree`. Position ids are those of the separate rows.

    Attributes:
        inputs: of a model with TRL's fused head: `input_ids`, `position_ids`, `shift_labels` (-100 where nothing is
            predicted) of shape (sequences, columns), `attention_mask` (true where a column attends) of shape
            (sequences, 1, columns, columns).
        sequence: of shape (rows, 1), the sequence of each row.
        column: of shape (rows, completion tokens), the column that predicts each token.
        mask: of the same shape, false on padding.
    """

    inputs: dict[str, Tensor]
    sequence: Tensor
    column: Tensor
    mask: Tensor

    def unpack(self, values: Tensor) -> Tensor:
        """Values of shape (sequences, columns) as (rows, completion tokens), 0 on padding."""
        return values[self.sequence, self.column].masked_fill(~self.mask, 0)


def separate_log_probs(
    model: Any,
    unwrapped: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor,
    completion_tokens: int,
    states: bool = False,
) -> Scores:
    """Log-probability and entropy of each completion token of rows, independent of their padding.

    The first token of a row has position 0. Without position ids, some models use the column instead, and absolute
    position embeddings would then shift with the padding.

    Args:
        model: with TRL's fused head, as the accelerator prepared it.
        unwrapped: the model itself.
        input_ids: of shape (rows, columns), prompts padded on the left, completions on the right.
        attention_mask: of the same shape, 0 on padding.
        completion_tokens: number of columns of the completion.
        states: whether to return hidden states.
    """
    positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
    labels = input_ids.masked_fill(attention_mask == 0, -100)
    labels[:, :-completion_tokens] = -100
    with hidden_states(unwrapped, states) as kept:
        output = model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            **({"position_ids": positions} if takes_positions(unwrapped) else {}),
            labels=labels,
            fused_lm_head=True,
        )
    entropy = None if output.entropy is None else output.entropy[:, -completion_tokens:]
    completion_states = kept[0][:, -completion_tokens - 1 : -1] if kept else None
    return Scores(output.log_probs[:, -completion_tokens:], entropy, completion_states)


def packed_log_probs(
    model: Any,
    unwrapped: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor,
    completion_tokens: int,
    states: bool = False,
) -> Scores | None:
    """As `separate_log_probs`, with what rows begin with in common read once; `None` if that would cost more.

    The model must have no `obstacle`.
    """
    hidden_size = unwrapped.config.get_text_config().hidden_size
    packed = pack(input_ids, attention_mask, completion_tokens, hidden_size)
    if packed is None:
        return None
    inputs = dict(packed.inputs)
    if unwrapped.config._attn_implementation == "eager":  # adds the mask to the attention scores
        visible = inputs["attention_mask"]
        bias = torch.zeros(visible.shape, dtype=unwrapped.dtype, device=visible.device)
        inputs["attention_mask"] = bias.masked_fill(~visible, torch.finfo(unwrapped.dtype).min)
    with hidden_states(unwrapped, states) as kept:
        output = model(**inputs, fused_lm_head=True)
    entropy = None if output.entropy is None else packed.unpack(output.entropy)
    completion_states = kept[0][packed.sequence, packed.column] if kept else None
    return Scores(packed.unpack(output.log_probs), entropy, completion_states)


def obstacle(model: PreTrainedModel) -> str:
    """Why packed rows would not have the log-probabilities and gradients of separate rows; empty if they have.

    They have them in a model that mixes tokens only in torch's attention, which takes a mask of any form, and that
    takes position ids. Active dropout would draw other random numbers, and the load balance of experts would differ.
    """
    config = model.config.get_text_config()
    rates = [
        rate
        for module in model.modules()
        for name, rate in vars(module).items()  # some families have no module for it, but a number
        if isinstance(rate, float) and ("drop" in name or isinstance(module, nn.Dropout))
    ]
    found = {
        "adapters of virtual tokens stand before every row": _has_virtual_tokens(model),
        "it needs full attention by attn_implementation sdpa or eager in every layer": not reads_in_parts(model),
        "its forward pass takes no position ids": getattr(config, "alibi", False) or not takes_positions(model),
        "the balance of its experts depends on the rows of a pass": getattr(config, "output_router_logits", False),
        "it has dropout": model.training and any(rates),
    }
    return next((reason for reason, holds in found.items() if holds), "")


def takes_positions(model: PreTrainedModel) -> bool:
    """Whether a model takes position ids, which PEFT's virtual tokens prevent."""
    inner = cast(Any, model)
    inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    return not _has_virtual_tokens(model) and _has_positions(cast(Hashable, type(inner)))


def _has_virtual_tokens(model: PreTrainedModel) -> bool:
    return bool(getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False))


@functools.cache
def _has_positions(model_type: Any) -> bool:
    return "position_ids" in inspect.signature(model_type.forward).parameters


def pack(input_ids: Tensor, attention_mask: Tensor, completion_tokens: int, hidden_size: int) -> Packed | None:
    """Packs rows that begin alike; `None` if that would cost more than separate rows.

    Args:
        input_ids, attention_mask, completion_tokens: as in `separate_log_probs`.
        hidden_size: of the model, for the cost of attention relative to that of the other layers.
    """
    device, predicted = input_ids.device, attention_mask[:, -completion_tokens:].bool()
    prompts = attention_mask[:, :-completion_tokens].sum(dim=1).tolist()
    if not all(prompts):  # padding predicts the first token of such a row
        return None
    rows = unpadded(input_ids, attention_mask)
    order = sorted(range(len(rows)), key=lambda row: token_order(rows[row]))
    runs = _cheapest([rows[row] for row in order], input_ids.shape[1], hidden_size)
    if not runs:
        return None
    trees = [Tree.of([rows[row] for row in order[first:last]]) for first, last in runs]
    shape = (len(trees), max(len(tree.ids) for tree in trees))
    packed_ids, positions, ends = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    labels = np.full(shape, -100)
    sequence, column = np.zeros((len(rows), 1), dtype=np.int64), np.zeros(predicted.shape, dtype=np.int64)
    for index, (tree, (first, last)) in enumerate(zip(trees, runs, strict=True)):
        own = slice(len(tree.ids))
        packed_ids[index, own], positions[index, own], ends[index, own] = tree.ids, tree.positions, tree.ends
        for row, path in zip(order[first:last], tree.paths, strict=True):
            at = path[prompts[row] - 1 :]
            sequence[row], column[row, : len(at)] = index, at
            labels[index, at] = rows[row][prompts[row] :]
    return Packed(
        inputs={
            "input_ids": torch.from_numpy(packed_ids).to(device),
            "position_ids": torch.from_numpy(positions).to(device),
            "shift_labels": torch.from_numpy(labels).to(device),
            "attention_mask": _visible(torch.from_numpy(ends).to(device)),
        },
        sequence=torch.from_numpy(sequence).to(device),
        column=torch.from_numpy(column).to(device),
        mask=predicted,
    )


def _cheapest(rows: list[Any], width: int, hidden_size: int) -> list[tuple[int, int]]:
    """The runs of sorted rows whose trees cost the least, none if rows padded to `width` cost less.

    A typical transformer layer has about 12 hidden_size^2 weights, each with 2 operations per token, and attention
    takes 4 hidden_size operations per pair of tokens. In units of those, a sequence of n columns costs

        n (6 hidden_size + n) with a mask,   n (6 hidden_size + n / 2) by a causal kernel.
    """

    def cost(sequences: int, columns: int, pairs: float = 1.0) -> float:
        return sequences * columns * (6.0 * hidden_size + pairs * columns)

    cuts = Runs(rows, 6.0 * hidden_size)
    tokens, longest = cuts.tokens(0, len(rows)), max(map(len, rows)) - 1
    # The last token of a row is only predicted, also where it is read.
    least, found = cost(len(rows), width - 1, pairs=0.5), list[tuple[int, int]]()
    bounds = {count: cost(count, max(longest, -(-tokens // count))) for count in range(1, len(rows) + 1)}
    for count in sorted(bounds, key=bounds.__getitem__):
        if bounds[count] >= least:
            break
        runs = cuts.runs(count, tokens)
        if (own := cost(count, max(cuts.tokens(*run) for run in runs))) < least:
            least, found = own, runs
    return found


def _visible(ends: Tensor) -> Tensor:
    """The attention mask of packed sequences, true where a column attends, of shape (sequences, 1, columns, columns);
    `ends` is as in `Tree`, 0 on padding."""
    places = torch.arange(ends.shape[1], device=ends.device)
    seen = (places <= places[:, None]) & (places[:, None] < ends[:, None])
    # Padding attends to itself: a softmax over nothing is NaN, also in the gradient.
    return (seen | (places == places[:, None]))[:, None]


@contextmanager
def hidden_states(model: Any, wanted: bool = True) -> Iterator[list[Tensor]]:
    """A list to which every forward pass within appends its last hidden states, if they are wanted."""
    if not wanted:
        yield []
        return
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    kept: list[Tensor] = []
    handle = inner.base_model.register_forward_hook(lambda module, args, output: kept.append(output.last_hidden_state))
    try:
        yield kept
    finally:
        handle.remove()
