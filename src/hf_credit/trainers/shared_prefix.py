"""Log-probabilities of rows, separately or in one pass that computes each distinct prompt once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_credit.policies.prefix_cache import reads_in_parts
from hf_credit.rollouts.batches import prompt_numbers
from hf_credit.trainers.trust_region import hidden_states


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
    """Rows packed into one sequence for each distinct prompt: the prompt, then a branch for each of its rows.

    A branch consists of the last token of the prompt and all but the last token of the completion: the positions that
    predict the completion. It attends to the prompt and to itself. Position ids are those of the separate rows.

    Attributes:
        inputs: of a model with TRL's fused head: `input_ids`, `position_ids`, `shift_labels` (-100 where nothing is
            predicted) of shape (prompts, columns), `attention_mask` of shape (prompts, 1, columns, columns).
        sequence: of shape (rows, 1), the sequence of each row.
        column: of shape (rows, completion tokens), the column that predicts each token.
        mask: of the same shape, false on padding.
    """

    inputs: dict[str, Tensor]
    sequence: Tensor
    column: Tensor
    mask: Tensor

    def unpack(self, values: Tensor) -> Tensor:
        """Values of shape (prompts, columns) as (rows, completion tokens), 0 on padding."""
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
        model, unwrapped, input_ids, attention_mask, completion_tokens, states: as in `shared_log_probs`.
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


def shared_log_probs(
    model: Any,
    unwrapped: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor,
    completion_tokens: int,
    states: bool = False,
) -> Scores | None:
    """Log-probability and entropy of each completion token of rows, computing each distinct prompt once.

    Args:
        model: with TRL's fused head, as the accelerator prepared it.
        unwrapped: the model itself.
        input_ids: of shape (rows, columns), prompts padded on the left, completions on the right.
        attention_mask: of the same shape, 0 on padding.
        completion_tokens: number of columns of the completion.
        states: whether to return hidden states.

    Returns:
        `None` if this would not be exact, or would cost more than separate rows.
    """
    if len(input_ids) == 1 or not shares_exactly(unwrapped):
        return None
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


def shares_exactly(model: PreTrainedModel) -> bool:
    """Whether packed rows have the same log-probabilities and gradients as separate rows.

    This needs a model that mixes tokens only in torch's attention, which takes a mask of any form, and that takes
    position ids. Active dropout would draw other random numbers, and the load balance of experts would differ.
    """
    config = model.config.get_text_config()
    if not reads_in_parts(model) or getattr(config, "alibi", False) or getattr(config, "output_router_logits", False):
        return False
    rates = [getattr(config, "attention_dropout", 0.0), *(m.p for m in model.modules() if isinstance(m, nn.Dropout))]
    if model.training and any(rates):
        return False
    return takes_positions(model)


def takes_positions(model: PreTrainedModel) -> bool:
    """Whether a model takes position ids, which PEFT's virtual tokens prevent."""
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        return False
    inner = cast(Any, model)
    inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    return _has_positions(cast(Hashable, type(inner)))


@functools.cache
def _has_positions(model_type: Any) -> bool:
    return "position_ids" in inspect.signature(model_type.forward).parameters


def pack(input_ids: Tensor, attention_mask: Tensor, completion_tokens: int, hidden_size: int) -> Packed | None:
    """Packs rows by prompt; `None` if that would cost more than separate rows.

    Args:
        input_ids, attention_mask, completion_tokens: as in `shared_log_probs`.
        hidden_size: of the model, for the cost of attention relative to that of the other layers.
    """
    width = input_ids.shape[1] - completion_tokens
    prompts = attention_mask[:, :width].sum(dim=1).tolist()
    lengths = attention_mask[:, width:].sum(dim=1).tolist()
    if min(prompts) == 0:  # padding predicts the first token of such a row
        return None
    by_number: dict[int, list[int]] = {}
    for row, number in enumerate(prompt_numbers(input_ids[:, :width], attention_mask[:, :width])):
        by_number.setdefault(number, []).append(row)
    groups = list(by_number.values())
    if len(groups) == len(prompts):
        return None
    columns = max(prompts[rows[0]] - 1 + sum(lengths[row] for row in rows) for rows in groups)
    separate = _cost(len(prompts), input_ids.shape[1], hidden_size, pairs=0.5)
    if _cost(len(groups), columns, hidden_size, pairs=1.0) >= separate:
        return None
    device = input_ids.device
    shape = (len(groups), columns)
    ids, positions = input_ids.new_zeros(shape), input_ids.new_zeros(shape)
    labels, branches = input_ids.new_full(shape, -100), input_ids.new_full(shape, -1)
    sequence, start = [0] * len(prompts), [0] * len(prompts)
    for index, rows in enumerate(groups):
        at = prompts[rows[0]] - 1
        ids[index, :at] = input_ids[rows[0], width - 1 - at : width - 1]
        positions[index, :at] = torch.arange(at, device=device)
        opens = at
        branches[index, :at] = 0
        for branch, row in enumerate(rows, start=1):
            here, own = slice(at, at + lengths[row]), slice(width - 1, width - 1 + lengths[row])
            ids[index, here] = input_ids[row, own]
            positions[index, here] = torch.arange(opens, opens + lengths[row], device=device)
            labels[index, here] = input_ids[row, width : width + lengths[row]]
            branches[index, here] = branch
            sequence[row], start[row] = index, at
            at += lengths[row]
    offset = torch.arange(completion_tokens, device=device)
    mask = attention_mask[:, width:].bool()
    return Packed(
        inputs={
            "input_ids": ids,
            "position_ids": positions,
            "shift_labels": labels,
            "attention_mask": _visible(branches),
        },
        sequence=torch.tensor(sequence, device=device)[:, None],
        column=(torch.tensor(start, device=device)[:, None] + offset).masked_fill(~mask, 0),
        mask=mask,
    )


def _cost(sequences: int, columns: int, hidden_size: int, pairs: float) -> float:
    """Cost of a typical transformer layer in units of 4 hidden_size operations: it has about 12 hidden_size^2
    weights, each with 2 operations per token, and attention takes 4 hidden_size operations per pair of tokens.

    `pairs` is the share of pairs that are computed: half by a causal kernel, all by a kernel with a mask.
    """
    return sequences * (6.0 * hidden_size * columns + pairs * columns * columns)


def _visible(branches: Tensor) -> Tensor:
    """The attention mask of packed sequences, true where a column attends, of shape (sequences, 1, columns, columns).

    Args:
        branches: of shape (sequences, columns): 0 in the prompt, -1 on padding, else the number of the branch.
    """
    visible = (branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None])
    columns = branches.shape[1]
    visible &= torch.ones(columns, columns, dtype=torch.bool, device=branches.device).tril()
    # Padding attends to itself: a softmax over nothing is NaN, also in the gradient.
    itself = torch.eye(columns, dtype=torch.bool, device=branches.device)
    return ((visible & (branches[:, :, None] >= 0)) | itself)[:, None]
