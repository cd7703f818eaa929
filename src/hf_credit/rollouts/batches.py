"""Padded batches of training rows, with the keys of TRL's loss, and their micro-batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hf_credit.rollouts.rows import Row

Mask = npt.NDArray[np.bool_]

_PROMPT_KEYS = ("prompt_ids", "prompt_mask")
_FORWARD_KEYS = (*_PROMPT_KEYS, "completion_ids", "completion_mask", "tool_mask", "role", "media")


def pad_rows(
    rows: Sequence[Row], pad_token_id: int, multiple_of: int | None = None, roles: Sequence[str] = ()
) -> dict[str, Tensor]:
    """Returns rows as tensors, with prompts padded on the left and completions on the right.

    Only the masks identify padding; a padding token may also be a token of the text.

    Args:
        rows: the rows, at least one.
        multiple_of: both lengths are rounded up to a multiple of this.
        roles: the roles with separate policies. A row without a role, which has no loss, belongs to the first.

    Returns:
        `prompt_ids`, `prompt_mask` of shape (rows, prompt tokens); `completion_ids`, `completion_mask` (0 on padding),
        `tool_mask` (1 on tokens in the loss) and `advantages` of shape (rows, completion tokens). Of the same shape
        also `sampling_per_token_logps`, if all rows have log-probabilities, and `marks`, if any row has marks (0 in
        the others). With `roles` also `role` of shape (rows,), the index of each row's role.
    """
    prompts = [row.prompt_ids for row in rows]
    completions = [row.completion_ids for row in rows]
    prompt_mask, mask = _left_mask(prompts, multiple_of)[:, ::-1], _left_mask(completions, multiple_of)
    batch = {
        "prompt_ids": _filled(prompts, prompt_mask, pad_token_id, np.int64),
        "prompt_mask": torch.from_numpy(prompt_mask.astype(np.int64)),
        "completion_ids": _filled(completions, mask, pad_token_id, np.int64),
        "completion_mask": torch.from_numpy(mask.astype(np.int64)),
        "tool_mask": _filled([row.loss_mask for row in rows], mask, 0, np.int64),
        "advantages": _filled([row.advantages for row in rows], mask, 0.0, np.float32),
    }
    logprobs = [row.logprobs for row in rows if row.logprobs is not None]
    if len(logprobs) == len(rows):
        batch["sampling_per_token_logps"] = _filled(logprobs, mask, 0.0, np.float32)
    if any(row.marks is not None for row in rows):
        marks = [[0] * len(row.completion_ids) if row.marks is None else row.marks for row in rows]
        batch["marks"] = _filled(marks, mask, 0, np.int64)
    if roles:
        batch["role"] = torch.tensor([roles.index(row.role or roles[0]) for row in rows])
    return batch


def padding_row(ids: Sequence[int], logprobs: bool = False) -> Row:
    """Returns a row without loss, to fill up a batch.

    Args:
        ids: the tokens of both prompt and completion, at least one.
        logprobs: whether it has log-probabilities, which either all rows of a batch have or none.
    """
    zeros = (0.0,) * len(ids)
    return Row(
        prompt_ids=tuple(ids),
        completion_ids=tuple(ids),
        loss_mask=(0,) * len(ids),
        advantages=zeros,
        logprobs=zeros if logprobs else None,
    )


def micro_batches(batch: dict[str, Any], size: int, roles: int = 1, together: bool = False) -> list[dict[str, Any]]:
    """Splits a batch into as few batches of at most `size` rows as possible.

    It reorders rows, by their length, which reduces padding, or with `together` so that those that begin alike are
    neighbours, for a forward pass that reads what they have in common once.

    If rows have a `role`, no part mixes roles. All processes run every part together, but may have different numbers
    of rows of each role; so the number of parts is the maximum over all mixtures of as many rows.

    Args:
        batch: tensors whose first dimension is the row, and lists with one value a row; tensors without dimensions
            are in every part.
        size: maximum number of rows, at least 1.
        roles: number of roles in the batches of all processes.
        together: whether rows that begin alike stay together; those with the same prompt then do if they fit.
    """
    role_of = batch["role"].tolist() if "role" in batch else [0] * len(batch["prompt_ids"])
    by_role: dict[int, list[list[int]]] = {}
    for group in _rows_by_prompt(batch) if together else _rows_by_length(batch):
        for role in sorted({role_of[row] for row in group}):
            by_role.setdefault(role, []).append([row for row in group if role_of[row] == role])
    parts = [part for _, groups in sorted(by_role.items()) for part in _packed(groups, size)]
    while len(parts) < min(len(role_of), -(-len(role_of) // size) + roles - 1):
        widest = max(range(len(parts)), key=lambda index: len(parts[index]))
        half = len(parts[widest]) // 2
        parts[widest : widest + 1] = [parts[widest][:half], parts[widest][half:]]
    order = torch.tensor([row for part in parts for row in part], device=batch["prompt_ids"].device)
    whole = {name: _taken(value, order) for name, value in batch.items()}
    prompts, completions = (whole[name].sum(dim=1).tolist() for name in ("prompt_mask", "completion_mask"))
    batches, start = [], 0
    for part in parts:
        rows = slice(start, start + len(part))
        batches.append(_cropped(whole, rows, max(prompts[rows]), max(completions[rows])))
        start += len(part)
    return batches


def map_micro_batches(
    batch: dict[str, Any],
    size: int,
    compute: Callable[[dict[str, Any]], Tensor],
    before: Callable[[dict[str, Any]], None] | None = None,
    roles: int = 1,
    together: bool = False,
) -> Tensor:
    """Returns a number for each completion token of a batch, computed in micro-batches; 0 on padding.

    Args:
        batch: the batch; only prompts, completions, their masks and roles are used.
        size: maximum number of rows of a micro-batch.
        compute: maps a micro-batch to numbers of shape (rows, completion tokens).
        before: called with each micro-batch before `compute`.
        roles, together: as in `micro_batches`.
    """
    rows = torch.arange(len(batch["prompt_ids"]), device=batch["prompt_ids"].device)
    result = torch.zeros(batch["completion_ids"].shape, device=rows.device)
    inputs = {name: batch[name] for name in _FORWARD_KEYS if name in batch}
    for part in micro_batches({**inputs, "row": rows}, size, roles, together):
        if before is not None:
            before(part)
        width = part["completion_ids"].shape[1]
        result[part["row"], :width] = compute(part).float() * part["completion_mask"]
    return result


def _rows_by_length(batch: dict[str, Tensor]) -> list[list[int]]:
    lengths = batch["prompt_mask"].sum(dim=1) + batch["completion_mask"].sum(dim=1)
    return [[row] for row in lengths.argsort(descending=True, stable=True).tolist()]


def _rows_by_prompt(batch: dict[str, Tensor]) -> list[list[int]]:
    """The rows of each distinct prompt, in the order of their tokens."""
    prompts, completions = (
        [token_order(ids) for ids in unpadded(batch[f"{part}_ids"], batch[f"{part}_mask"])]
        for part in ("prompt", "completion")
    )
    groups: dict[bytes, list[int]] = {}
    for row in sorted(range(len(prompts)), key=lambda row: prompts[row] + completions[row]):
        groups.setdefault(prompts[row], []).append(row)
    return list(groups.values())


def unpadded(ids: Tensor, mask: Tensor) -> list[npt.NDArray[np.int64]]:
    """The tokens of each row.

    Args:
        ids: of shape (rows, columns).
        mask: of the same shape, 0 on padding.
    """
    return [row[seen] for row, seen in zip(ids.cpu().numpy(), mask.bool().cpu().numpy(), strict=True)]


def token_order(ids: npt.NDArray[np.int64]) -> bytes:
    """The key by which rows are sorted, so that rows that begin alike are neighbours.

    Args:
        ids: the tokens of a row, each from 0 to 2**32 - 1.
    """
    return ids.astype(">u4").tobytes()


def _packed(groups: list[list[int]], size: int) -> list[list[int]]:
    """Groups of rows in parts of `size` rows, the last one with the rest. A group is split only if none fits."""
    left = [group[start : start + size] for group in groups for start in range(0, len(group), size)]
    left.sort(key=len, reverse=True)
    parts: list[list[int]] = []
    while left:
        part: list[int] = []
        while left and len(part) < size:
            free = size - len(part)
            fits = next((index for index, group in enumerate(left) if len(group) <= free), None)
            if fits is None:
                part += left[0][:free]
                left[0] = left[0][free:]
            else:
                part += left.pop(fits)
        parts.append(part)
    return parts


def _taken(value: Any, order: Tensor) -> Any:
    if isinstance(value, list):
        return [value[row] for row in order.tolist()]
    return value[order] if value.ndim else value


def _cropped(batch: dict[str, Any], rows: slice, prompt: int, completion: int) -> dict[str, Any]:
    """Some rows of a batch, with the given numbers of prompt and completion columns."""
    width = batch["completion_ids"].shape[1]

    def crop(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return value[rows]
        if not value.ndim:
            return value
        if name in _PROMPT_KEYS:
            return value[rows, value.shape[1] - prompt :]
        # A sequence-level ratio has only one column.
        return value[rows, :completion] if value.ndim >= 2 and value.shape[1] == width else value[rows]

    return {name: crop(name, value) for name, value in batch.items()}


def _left_mask(sequences: Sequence[Sequence[float]], multiple_of: int | None) -> Mask:
    """A mask of shape (sequences, columns) with as many leading ones in each row as its sequence has entries."""
    lengths = np.array([len(sequence) for sequence in sequences])
    step = multiple_of or 1
    columns = -(-int(lengths.max()) // step) * step
    return np.arange(columns) < lengths[:, None]


def _filled(sequences: Sequence[Sequence[float]], mask: Mask, fill: float, dtype: type[np.number[Any]]) -> Tensor:
    """The entries of sequences where the mask is true, `fill` where it is false."""
    values = np.full(mask.shape, fill, dtype)
    values[mask] = np.fromiter(itertools.chain.from_iterable(sequences), dtype)
    return torch.from_numpy(values)
