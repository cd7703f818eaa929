"""Training rows as padded tensors, under the names of TRL's loss, and back into small batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hf_credit.rollouts.rows import Row

Places = npt.NDArray[np.bool_]

_PROMPT_KEYS = ("prompt_ids", "prompt_mask")
_FORWARD_KEYS = (*_PROMPT_KEYS, "completion_ids", "completion_mask", "role")


def pad_rows(
    rows: Sequence[Row], pad_token_id: int, multiple_of: int | None = None, roles: Sequence[str] = ()
) -> dict[str, Tensor]:
    """Rows as tensors: prompts padded on the left, completions on the right.

    Only the masks identify padding; a padding token may also be a token of the text.

    Args:
        rows: at least one.
        pad_token_id: fills the gaps.
        multiple_of: both lengths are rounded up to a multiple of this.
        roles: those with their own policy. A row without a role, which has no loss, goes to the first.

    Returns:
        `prompt_ids`, `prompt_mask` of shape (rows, prompt tokens); `completion_ids`, `completion_mask` (1 on every
        token that is there), `tool_mask` (1 on the tokens in the loss), `advantages`, and, where every row has them,
        `sampling_per_token_logps`, of shape (rows, completion tokens); where a row has them, `marks`, likewise, 0 in
        rows without; and, with `roles`, `role`, the index of each row's, of shape (rows,).
    """
    prompts = [row.prompt_ids for row in rows]
    completions = [row.completion_ids for row in rows]
    before, there = _there(prompts, multiple_of)[:, ::-1], _there(completions, multiple_of)
    batch = {
        "prompt_ids": _laid(prompts, before, pad_token_id, np.int64),
        "prompt_mask": torch.from_numpy(before.astype(np.int64)),
        "completion_ids": _laid(completions, there, pad_token_id, np.int64),
        "completion_mask": torch.from_numpy(there.astype(np.int64)),
        "tool_mask": _laid([row.loss_mask for row in rows], there, 0, np.int64),
        "advantages": _laid([row.advantages for row in rows], there, 0.0, np.float32),
    }
    logprobs = [row.logprobs for row in rows if row.logprobs is not None]
    if len(logprobs) == len(rows):
        batch["sampling_per_token_logps"] = _laid(logprobs, there, 0.0, np.float32)
    if any(row.marks is not None for row in rows):
        marks = [[0] * len(row.completion_ids) if row.marks is None else row.marks for row in rows]
        batch["marks"] = _laid(marks, there, 0, np.int64)
    if roles:
        batch["role"] = torch.tensor([roles.index(row.role or roles[0]) for row in rows])
    return batch


def padding_row(ids: Sequence[int], logprobs: bool = False) -> Row:
    """A row without loss, as padding.

    Args:
        ids: prompt and completion, at least one token.
        logprobs: whether it has the sampler's log-probabilities, which all rows of a batch have or none.
    """
    nothing = (0.0,) * len(ids)
    return Row(
        prompt_ids=tuple(ids),
        completion_ids=tuple(ids),
        loss_mask=(0,) * len(ids),
        advantages=nothing,
        logprobs=nothing if logprobs else None,
    )


def micro_batches(batch: dict[str, Tensor], size: int, roles: int = 1) -> list[dict[str, Tensor]]:
    """Splits a batch into as few batches of at most `size` rows as possible, each with minimal padding.

    The rows of a batch are independent, so their order is free. Rows with one prompt stay together if they fit, so
    that a forward pass can compute the prompt once. Prompts with equally many rows are neighbours, longest first,
    which minimises padding.

    If rows have a `role`, no part mixes roles. All processes run every part together, with different numbers of rows
    of each role; so the number of parts suffices for any mixture of as many rows.

    Args:
        batch: tensors whose first dimension is the row; those without dimensions are in every part.
        size: at least 1.
        roles: number of roles in the batches of all processes.
    """
    role_of = batch["role"].tolist() if "role" in batch else [0] * len(batch["prompt_ids"])
    by_role: dict[int, list[list[int]]] = {}
    for group in _rows_by_prompt(batch):
        for role in sorted({role_of[row] for row in group}):
            by_role.setdefault(role, []).append([row for row in group if role_of[row] == role])
    parts = [part for _, groups in sorted(by_role.items()) for part in _together(groups, size)]
    while len(parts) < min(len(role_of), -(-len(role_of) // size) + roles - 1):
        widest = max(range(len(parts)), key=lambda index: len(parts[index]))
        half = len(parts[widest]) // 2
        parts[widest : widest + 1] = [parts[widest][:half], parts[widest][half:]]
    order = torch.tensor([row for part in parts for row in part], device=batch["prompt_ids"].device)
    whole = {name: value[order] if value.ndim else value for name, value in batch.items()}
    prompts, completions = (whole[name].sum(dim=1).tolist() for name in ("prompt_mask", "completion_mask"))
    found, start = [], 0
    for part in parts:
        rows = slice(start, start + len(part))
        found.append(_cut_out(whole, rows, max(prompts[rows]), max(completions[rows])))
        start += len(part)
    return found


def map_micro_batches(
    batch: dict[str, Tensor],
    size: int,
    compute: Callable[[dict[str, Tensor]], Tensor],
    before: Callable[[dict[str, Tensor]], None] | None = None,
    roles: int = 1,
) -> Tensor:
    """A number for each completion token of a batch, computed a few rows at a time; 0 on padding.

    Args:
        batch: with prompts and completions and their masks, and perhaps roles.
        size: the most rows at a time.
        compute: from a part, whose prompts and completions have masks, to numbers of shape (rows, completion tokens).
        before: called with each part before it is computed.
        roles: as in `micro_batches`.
    """
    rows = torch.arange(len(batch["prompt_ids"]), device=batch["prompt_ids"].device)
    result = torch.zeros(batch["completion_ids"].shape, device=rows.device)
    read = {name: batch[name] for name in _FORWARD_KEYS if name in batch}
    for part in micro_batches({**read, "row": rows}, size, roles):
        if before is not None:
            before(part)
        width = part["completion_ids"].shape[1]
        result[part["row"], :width] = compute(part).float() * part["completion_mask"]
    return result


def _rows_by_prompt(batch: dict[str, Tensor]) -> list[list[int]]:
    """The rows of each distinct prompt, longest first, starting with the prompt with the longest row."""
    lengths = batch["prompt_mask"].sum(dim=1) + batch["completion_mask"].sum(dim=1)
    prompt_of = prompt_numbers(batch["prompt_ids"], batch["prompt_mask"])
    groups: dict[int, list[int]] = {}
    for row in lengths.argsort(descending=True, stable=True).tolist():
        groups.setdefault(prompt_of[row], []).append(row)
    return list(groups.values())


def _together(groups: list[list[int]], size: int) -> list[list[int]]:
    """Groups of rows in parts of `size` rows, the last one with the rest. A group is split only if none fits."""
    waiting = [group[start : start + size] for group in groups for start in range(0, len(group), size)]
    waiting.sort(key=len, reverse=True)
    parts: list[list[int]] = []
    while waiting:
        part: list[int] = []
        while waiting and len(part) < size:
            room = size - len(part)
            fits = next((index for index, group in enumerate(waiting) if len(group) <= room), None)
            if fits is None:
                part += waiting[0][:room]
                waiting[0] = waiting[0][room:]
            else:
                part += waiting.pop(fits)
        parts.append(part)
    return parts


def prompt_numbers(ids: Tensor, mask: Tensor) -> list[int]:
    """A number for each row, the same for rows with the same prompt.

    Args:
        ids: of shape (rows, prompt tokens), padded on the left.
        mask: of the same shape, 1 on every token that is there.
    """
    numbers: dict[bytes, int] = {}
    lengths = mask.sum(dim=1).tolist()
    prompts = (row[len(row) - length :].tobytes() for row, length in zip(ids.cpu().numpy(), lengths, strict=True))
    return [numbers.setdefault(prompt, len(numbers)) for prompt in prompts]


def _cut_out(batch: dict[str, Tensor], rows: slice, prompt: int, completion: int) -> dict[str, Tensor]:
    """Some rows of a batch, with these numbers of columns of the prompts and of the completions."""
    width = batch["completion_ids"].shape[1]

    def cut(name: str, value: Tensor) -> Tensor:
        if not value.ndim:
            return value
        if name in _PROMPT_KEYS:
            return value[rows, value.shape[1] - prompt :]
        # A sequence-level ratio has one column for the row and none to drop.
        return value[rows, :completion] if value.ndim >= 2 and value.shape[1] == width else value[rows]

    return {name: cut(name, value) for name, value in batch.items()}


def _there(sequences: Sequence[Sequence[float]], multiple_of: int | None) -> Places:
    """The positions of the entries of sequences, one per row, from the left; of shape (sequences, columns)."""
    lengths = np.array([len(sequence) for sequence in sequences])
    step = multiple_of or 1
    columns = -(-int(lengths.max()) // step) * step
    return np.arange(columns) < lengths[:, None]


def _laid(sequences: Sequence[Sequence[float]], there: Places, fill: float, dtype: type[np.number[Any]]) -> Tensor:
    """The entries of sequences at their positions, and `fill` elsewhere."""
    laid = np.full(there.shape, fill, dtype)
    laid[there] = np.fromiter(itertools.chain.from_iterable(sequences), dtype)
    return torch.from_numpy(laid)
