"""Log-probabilities of rows, each read by itself or with what rows begin with in common read once."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from hf_credit.policies.generation import evaluating
from hf_credit.policies.prefix_cache import alike, has_virtual_tokens, reads_in_parts
from hf_credit.rollouts.batches import token_order, unpadded
from hf_credit.rollouts.media import OF_TEXT, Media
from hf_credit.trainers.packing import Runs, Tree


class Scores(NamedTuple):
    """Values of the completion tokens of rows, of shape (rows, completion tokens).

    Attributes:
        logprobs: log-probability of each scored token, 0 on others.
        entropy: of the distribution at each scored token, 0 on others, if the head computes it.
        states: the last hidden state before each token, of shape (rows, completion tokens, width), if requested.
    """

    logprobs: Tensor
    entropy: Tensor | None
    states: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Rows laid out in the sequences that a model reads.

    Attributes:
        inputs: of the model: `input_ids`, `position_ids` and `attention_mask` of shape (sequences, columns). The mask
            of packed rows has shape (sequences, 1, columns, columns), and is true where a column attends.
        labels: of shape (sequences, columns), the scored token that each column predicts, -100 where there is none.
        places: index of the columns that predict the completion tokens of the rows.
    """

    inputs: dict[str, Any]
    labels: Tensor
    places: tuple[Any, Any]


def log_probs(model: Any, unwrapped: Any, sequences: Sequences, scored: Tensor, states: bool = False) -> Scores:
    """Log-probability and entropy of completion tokens of rows, independent of their padding.

    Only states that predict a label reach the head: TRL's would take all on a CPU.

    Args:
        model: with TRL's fused head, as the accelerator prepared it.
        unwrapped: the model itself.
        sequences: the rows, from `pack` or `separate`.
        scored: of shape (rows, completion tokens), true on the tokens to score.
        states: whether to return hidden states.
    """
    labels = sequences.labels
    predicting = labels != -100

    def of_rows(values: Tensor) -> Tensor:
        spread = values.new_zeros(labels.shape).masked_scatter(predicting, values)
        return spread[sequences.places].masked_fill(~scored, 0)

    with head_reads(unwrapped, predicting) as kept:
        output = model(**sequences.inputs, shift_labels=labels[predicting][None], fused_lm_head=True)
    entropy = None if output.entropy is None else of_rows(output.entropy)
    return Scores(of_rows(output.log_probs), entropy, kept[0][sequences.places] if states else None)


@contextmanager
def head_reads(unwrapped: Any, columns: Tensor) -> Iterator[list[Tensor]]:
    """Within, only the hidden states of chosen columns reach a model's head, as one row; yields all states, appended.

    Args:
        columns: of shape (sequences, columns), true on those to keep.
    """
    inner, kept = unwrapped.get_base_model() if hasattr(unwrapped, "get_base_model") else unwrapped, list[Tensor]()

    def gather(module: Any, args: Any, output: Any) -> None:
        kept.append(output.last_hidden_state[:, -columns.shape[1] :])  # after virtual tokens
        output.last_hidden_state = kept[0][columns.to(kept[0].device)][None]

    handle = inner.base_model.register_forward_hook(gather)
    try:
        yield kept
    finally:
        handle.remove()


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
        "adapters of virtual tokens stand before every row": has_virtual_tokens(model),
        "it needs full attention by attn_implementation sdpa or eager in every layer": not reads_in_parts(model),
        "its forward pass takes no position ids": getattr(config, "alibi", False) or not takes_positions(model),
        "the balance of its experts depends on the rows of a pass": getattr(config, "output_router_logits", False),
        "it has dropout (of adapters lora_dropout, by default 0.05; 0 turns it off)": model.training and any(rates),
    }
    return next((reason for reason, holds in found.items() if holds), "")


_TRIED: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_TRIED_TOKENS = 896  # of the tree that is tried: more than any window that no config tells


def why_apart(model: Any, unwrapped: Any, accelerator: Any, media: Media = OF_TEXT) -> str:
    """As `obstacle`, and tried once for a model; the same on every process, which all ask at the same time.

    Args:
        model: as the accelerator prepared it.
        unwrapped: the model itself.
        media: of its rows.
    """
    reason = obstacle(unwrapped)
    if not reason and unwrapped not in _TRIED:
        differs = torch.tensor([not _packs(model, unwrapped, media)], device=accelerator.device)
        failed = bool(accelerator.gather(differs).any())
        _TRIED[unwrapped] = "packed rows, tried once, had other hidden states than separate ones" if failed else ""
    return reason or _TRIED[unwrapped]


@torch.no_grad()
def _packs(model: Any, unwrapped: Any, media: Media) -> bool:
    """Whether two packed rows that share their first half have the hidden states of the same rows by themselves."""
    begun, images = media.sample()
    config = unwrapped.config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None) or _TRIED_TOKENS
    half = max(min(positions - 4, _TRIED_TOKENS) // 3, 2)
    drawn = np.random.default_rng(0).integers(config.vocab_size, size=(3, half))
    drawn[np.isin(drawn, media.unsampled)] = 0
    shared, *rest = drawn
    ids = torch.from_numpy(np.stack([np.append([*begun, *shared], one) for one in rest])).to(unwrapped.device)
    scored = torch.zeros_like(ids[:, -half:], dtype=torch.bool)
    scored[:, -1] = True  # all have states, which are compared

    def states(lay_out: Any, padding: int, **how: Any) -> Tensor:
        rows, mask = (functional.pad(one, (padding, 0)) for one in (ids, torch.ones_like(ids)))
        sequences = lay_out(rows, mask, scored, unwrapped, media, [images] * 2, **how)
        return cast(Tensor, log_probs(model, unwrapped, sequences, scored, states=True).states)

    with evaluating(unwrapped):
        return alike(lambda: states(pack, 0, runs=[(0, 2)]), lambda: states(separate, 0), lambda: states(separate, 2))


def takes_positions(model: PreTrainedModel) -> bool:
    """Whether a model takes position ids, which PEFT's virtual tokens prevent."""
    inner = cast(Any, model)
    inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    return not has_virtual_tokens(model) and "position_ids" in inspect.signature(type(inner).forward).parameters


def pack(
    input_ids: Tensor,
    attention_mask: Tensor,
    scored: Tensor,
    unwrapped: Any,
    media: Media = OF_TEXT,
    shown: Sequence[Sequence[str]] | None = None,
    runs: list[tuple[int, int]] | None = None,
) -> Sequences | None:
    """Packs rows, so that what they begin with in common is read once; `None` if that would cost more than separate
    rows.

    Args:
        input_ids: of shape (rows, columns), prompts padded on the left, completions on the right.
        attention_mask: of the same shape, 0 on padding.
        scored: of shape (rows, completion tokens), true on the tokens to score.
        unwrapped: the model, which has no `obstacle`.
        media, shown: what the rows have besides text (`Media.of_rows`).
        runs: of rows, ordered by their tokens, that become one sequence each; the cheapest if `None`.
    """
    device, wanted = input_ids.device, scored.cpu().numpy()
    prompts = attention_mask[:, : -scored.shape[1]].sum(dim=1).tolist()
    if not all(prompts):  # padding predicts the first token of such a row
        return None
    rows_alone = unpadded(input_ids, attention_mask)
    rows, images = media.marked(rows_alone, shown)
    order = sorted(range(len(rows)), key=lambda row: token_order(rows[row]))
    if runs is None:
        config = unwrapped.config.get_text_config()
        positions = getattr(config, "max_position_embeddings", None)
        runs = _cheapest([rows[row] for row in order], input_ids.shape[1], config.hidden_size, positions)
    if not runs:
        return None
    trees = [Tree.of([rows[row] for row in order[first:last]]) for first, last in runs]
    shape = (len(trees), max(len(tree.ids) for tree in trees))
    packed_ids, positions, ends = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    labels = np.full(shape, -100)
    sequence, column = np.zeros((len(rows), 1), dtype=np.int64), np.zeros(wanted.shape, dtype=np.int64)
    of_images = media.positions(unwrapped, input_ids, attention_mask, shown)
    placed = None if of_images is None else of_images.new_zeros(len(of_images), *shape)
    for index, (tree, (first, last)) in enumerate(zip(trees, runs, strict=True)):
        length = slice(len(tree.ids))
        packed_ids[index, length], positions[index, length], ends[index, length] = tree.ids, tree.positions, tree.ends
        for row, path in zip(order[first:last], tree.paths, strict=True):
            if images:
                packed_ids[index, path] = rows_alone[row][:-1]
            if placed is not None and of_images is not None:
                placed[:, index, path] = of_images[:, row, attention_mask[row].bool()][:, :-1]
            at = path[prompts[row] - 1 :]
            sequence[row], column[row, : len(at)] = index, at
            kept = wanted[row, : len(at)]
            labels[index, at[kept]] = rows_alone[row][prompts[row] :][kept]
    mask = _visible(torch.from_numpy(ends).to(device))
    if unwrapped.config._attn_implementation == "eager":  # adds the mask to the attention scores
        bias = torch.zeros(mask.shape, dtype=unwrapped.dtype, device=device)
        mask = bias.masked_fill(~mask, torch.finfo(unwrapped.dtype).min)
    ids = torch.from_numpy(packed_ids).to(device)
    seen = [[images[one] for one in tree.images] for tree in trees] if images else None
    return Sequences(
        inputs={
            **media.inputs(unwrapped, ids, seen),
            "input_ids": ids,
            "position_ids": torch.from_numpy(positions).to(device) if placed is None else placed,
            "attention_mask": mask,
        },
        labels=torch.from_numpy(labels).to(device),
        places=(torch.from_numpy(sequence).to(device), torch.from_numpy(column).to(device)),
    )


def separate(
    input_ids: Tensor,
    attention_mask: Tensor,
    scored: Tensor,
    unwrapped: Any,
    media: Media = OF_TEXT,
    shown: Sequence[Sequence[str]] | None = None,
) -> Sequences:
    """Each row by itself; arguments as in `pack`.

    The first token of a row has position 0. Without position ids, some models use the column instead, and absolute
    position embeddings would then shift with the padding.
    """
    inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
    if takes_positions(unwrapped):
        inputs["position_ids"] = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
    tokens = scored.shape[1]
    places = slice(None), slice(-tokens - 1, -1)
    labels = torch.full_like(input_ids, -100)
    labels[places] = input_ids[:, -tokens:].masked_fill(~scored, -100)
    inputs |= media.inputs(unwrapped, input_ids, shown)
    return Sequences(inputs=inputs, labels=labels, places=places)


def _cheapest(rows: list[Any], width: int, hidden_size: int, positions: int | None) -> list[tuple[int, int]]:
    """The runs of sorted rows whose trees cost the least, none if rows padded to `width` cost less.

    No tree is longer than the model's positions, as some models have so many columns.

    A typical transformer layer has about 12 hidden_size^2 weights, each with 2 operations per token, and attention
    takes 4 hidden_size operations per pair of tokens. In units of those, a sequence of n columns costs

        n (6 hidden_size + n) with a mask,   n (6 hidden_size + n / 2) by a causal kernel.
    """

    def cost(sequences: int, columns: int, pairs: float = 1.0) -> float:
        return sequences * columns * (6.0 * hidden_size + pairs * columns)

    cuts = Runs(rows, 6.0 * hidden_size)
    tokens, longest = cuts.tokens(0, len(rows)), max(map(len, rows)) - 1
    most = min(tokens, positions or tokens)
    # The last token of a row is only predicted, also where it is read.
    least, found = cost(len(rows), width - 1, pairs=0.5), list[tuple[int, int]]()
    bounds = {count: cost(count, max(longest, -(-tokens // count))) for count in range(1, len(rows) + 1)}
    for count in sorted(bounds, key=bounds.__getitem__):
        if bounds[count] >= least:
            break
        runs = cuts.balanced(count, most)
        if runs and (runs_cost := cost(count, max(cuts.tokens(*run) for run in runs))) < least:
            least, found = runs_cost, runs
    return found


def _visible(ends: Tensor) -> Tensor:
    """The attention mask of packed sequences, true where a column attends, of shape (sequences, 1, columns, columns);
    `ends` is as in `Tree`, 0 on padding."""
    places = torch.arange(ends.shape[1], device=ends.device)
    seen = (places <= places[:, None]) & (places[:, None] < ends[:, None])
    # Padding attends to itself: a softmax over nothing is NaN, also in the gradient.
    return (seen | (places == places[:, None]))[:, None]
