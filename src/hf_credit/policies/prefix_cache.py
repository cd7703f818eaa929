"""Keys and values of earlier turns, so that a conversation that goes on is not read again from its start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer

# A cached token is not always in the column that its position says; these attend by mask, whatever the column.
_ATTENTION = ("sdpa", "eager")


@dataclass(frozen=True, kw_only=True)
class _Table:
    """What the model has read.

    Attributes:
        tokens: of each row, the tokens whose keys and values are held.
        mask: of shape (rows, columns), which columns hold them, in their order.
        cache: keys and values by layer, of shape (rows, heads, columns, head width).
        weights: of the model that read them.
    """

    tokens: list[tuple[int, ...]]
    mask: Tensor
    cache: DynamicCache
    weights: tuple[tuple[int, int], ...]


class PrefixCache:
    """The inputs of a generation call, without what the last call has read already.

    Remembers one call. A context that begins with a context and reply of that call goes on from their keys and
    values; the others are read first, so that one call generates all. If none goes on, everything is forgotten and
    read anew. So it is where a weight was written to since, with attention over a window, and with any attention but
    torch's own. Adapters that are switched rather than written to go unnoticed: make another one for them.

    Args:
        model: a causal language model in evaluation mode.
        pad_token_id: fills the gaps.
    """

    def __init__(self, model: PreTrainedModel, pad_token_id: int) -> None:
        self.model = model
        self.pad_token_id = pad_token_id
        # A token is drawn too, but not from the random stream, and nobody looks at it.
        self._read_only = GenerationConfig(
            max_new_tokens=1,
            do_sample=False,
            pad_token_id=pad_token_id,
            disable_compile=True,
            return_dict_in_generate=True,
        )
        self._last: _Table | None = None

    def inputs(self, contexts: Sequence[Sequence[int]]) -> dict[str, Any]:
        """`input_ids` and `attention_mask` of shape (contexts, columns), padded on the left, and `past_key_values`
        for the first columns where there are any."""
        last, self._last = self._last, None
        if last is None or last.weights != self._weights():
            return self._padded(contexts)
        rows = _continued(last.tokens, contexts)
        if all(row is None for row in rows):
            return self._padded(contexts)
        fresh = [context for context, row in zip(contexts, rows, strict=True) if row is None]
        if fresh:
            following = iter(range(len(last.tokens), len(last.tokens) + len(fresh)))
            rows = [next(following) if row is None else row for row in rows]
            last = _joined(last, self._read([context[:-1] for context in fresh]))
        return self._continuing(last, [row for row in rows if row is not None], contexts)

    def keep(
        self, contexts: Sequence[Sequence[int]], mask: Tensor, replies: Sequence[Sequence[int]], cache: Any
    ) -> None:
        """Remembers a call.

        Args:
            contexts: of the call.
            mask: the `attention_mask` of its inputs.
            replies: what the model generated.
            cache: the `past_key_values` it left behind.
        """
        plain = isinstance(cache, DynamicCache) and all(type(layer) is DynamicLayer for layer in cache.layers)
        if not plain or self.model.config._attn_implementation not in _ATTENTION:
            return
        # The last token was drawn but not read.
        read = cache.get_seq_length() - mask.shape[1]
        lengths = torch.tensor([len(reply) for reply in replies], device=mask.device)
        held = torch.cat([mask, torch.arange(read, device=mask.device) < lengths[:, None]], dim=1)
        tokens = [(*context, *reply[:read]) for context, reply in zip(contexts, replies, strict=True)]
        self._last = _Table(tokens=tokens, mask=held.bool(), cache=cache, weights=self._weights())

    def _weights(self) -> tuple[tuple[int, int], ...]:
        """What changes whenever a weight is written to or replaced."""
        return tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in self.model.parameters())

    def _padded(self, contexts: Sequence[Sequence[int]]) -> dict[str, Any]:
        width = max(map(len, contexts))
        ids = [[self.pad_token_id] * (width - len(context)) + list(context) for context in contexts]
        mask = [[0] * (width - len(context)) + [1] * len(context) for context in contexts]
        device = self.model.device
        return {"input_ids": torch.tensor(ids, device=device), "attention_mask": torch.tensor(mask, device=device)}

    def _read(self, contexts: Sequence[Sequence[int]]) -> _Table:
        """The keys and values of contexts, some of which may be empty."""
        inputs = self._padded([context or (self.pad_token_id,) for context in contexts])
        output = cast(Any, self.model).generate(**inputs, generation_config=self._read_only)
        some = torch.tensor([bool(context) for context in contexts], device=inputs["attention_mask"].device)
        return _Table(
            tokens=[tuple(context) for context in contexts],
            mask=inputs["attention_mask"].bool() & some[:, None],
            cache=output.past_key_values,
            weights=(),
        )

    def _continuing(self, table: _Table, rows: list[int], contexts: Sequence[Sequence[int]]) -> dict[str, Any]:
        """The inputs of contexts of which `rows` of the table hold the beginning."""
        known = [len(table.tokens[row]) for row in rows]
        chosen = torch.tensor(rows, device=table.mask.device)
        mask = table.mask[chosen]
        # The columns in use, in their order, moved to the right.
        columns = mask.int().argsort(dim=1, stable=True)[:, mask.shape[1] - max(known) :]
        for layer in _layers(table.cache):
            layer.keys = layer.keys[chosen[:, None], :, columns].transpose(1, 2)
            layer.values = layer.values[chosen[:, None], :, columns].transpose(1, 2)
        inputs = self._padded([context[count:] for context, count in zip(contexts, known, strict=True)])
        mask = mask.gather(1, columns).to(inputs["attention_mask"].dtype)
        return {
            "input_ids": torch.cat([torch.full_like(mask, self.pad_token_id), inputs["input_ids"]], dim=1),
            "attention_mask": torch.cat([mask, inputs["attention_mask"]], dim=1),
            "past_key_values": table.cache,
        }


def _continued(known: Sequence[tuple[int, ...]], contexts: Sequence[Sequence[int]]) -> list[int | None]:
    """For each context a row that it begins with and goes on from; `None` where there seems to be none."""
    order = sorted(range(len(known)), key=known.__getitem__)
    ordered = [known[row] for row in order]
    found: list[int | None] = []
    for context in map(tuple, contexts):
        # In the order of a dictionary, what a word begins with stands before it, and mostly right before it.
        place = bisect_right(ordered, context) - 1
        goes_on = (
            place >= 0 and len(ordered[place]) < len(context) and context[: len(ordered[place])] == ordered[place]
        )
        found.append(order[place] if goes_on else None)
    return found


def _joined(first: _Table, second: _Table) -> _Table:
    """The rows of both, padded on the left to the same number of columns."""
    width = max(first.mask.shape[1], second.mask.shape[1])

    def widen(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (0, 0, width - values.shape[-2], 0))

    for layer, other in zip(_layers(first.cache), _layers(second.cache), strict=True):
        layer.keys = torch.cat([widen(layer.keys), widen(other.keys)])
        layer.values = torch.cat([widen(layer.values), widen(other.values)])
    mask = torch.cat([widen(table.mask[..., None])[..., 0] for table in (first, second)])
    return _Table(tokens=first.tokens + second.tokens, mask=mask, cache=first.cache, weights=first.weights)


def _layers(cache: DynamicCache) -> list[Any]:
    """The layers of a cache, which `keep` has seen to be of the plain kind."""
    return cache.layers
