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

# Both attend by mask and position alone, so that a context may be read in parts.
_ATTENTION = ("sdpa", "eager")
_Key = tuple[str, tuple[int, ...]]
"""An adapter, and tokens that were read with it."""


def reads_in_parts(model: PreTrainedModel) -> bool:
    """Whether a model that reads a context in parts, keeping keys and values, computes what it computes in one go.

    So it is with torch's own attention over the whole context in every layer, and without virtual tokens before it.
    """
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        return False
    layers = DynamicCache(config=model.config.get_text_config(decoder=True)).layers
    return (
        bool(layers)
        and all(type(layer) is DynamicLayer for layer in layers)
        and model.config._attn_implementation in _ATTENTION
    )


@dataclass(frozen=True, kw_only=True)
class _Table:
    """What the model has read.

    Attributes:
        tokens: of each row, the tokens whose keys and values are held.
        adapters: of each row, the adapter that they were read with, where a call names one for each row.
        mask: of shape (rows, columns), which columns hold them, in their order.
        cache: keys and values by layer, of shape (rows, heads, columns, head width).
        weights: of the model that read them, and of its adapters which are in use.
    """

    tokens: list[tuple[int, ...]]
    adapters: list[str]
    mask: Tensor
    cache: DynamicCache
    weights: tuple[Any, ...]


class PrefixCache:
    """The inputs of a generation call, without what the last call has read already.

    Remembers one call. A context that begins with a context and reply of that call goes on from their keys and
    values; the others are read first, equal ones once, so that one call generates all. Everything is read anew where a
    weight was written to or an adapter switched since, and with a model that does not read in parts (see
    `reads_in_parts`). Where calls name the adapter of each context, a context goes on from what its own adapter read.

    Args:
        model: a causal language model in evaluation mode.
        pad_token_id: fills the gaps.
    """

    def __init__(self, model: PreTrainedModel, pad_token_id: int) -> None:
        self.model = model
        self.pad_token_id = pad_token_id
        self.reads_in_parts = reads_in_parts(model)
        # A token is drawn too, but not from the random stream, and nobody looks at it.
        self._read_only = GenerationConfig(
            max_new_tokens=1,
            do_sample=False,
            pad_token_id=pad_token_id,
            disable_compile=True,
            return_dict_in_generate=True,
        )
        self._last: _Table | None = None

    def inputs(self, contexts: Sequence[Sequence[int]], adapters: Sequence[str] | None = None) -> dict[str, Any]:
        """`input_ids` and `attention_mask` of shape (contexts, columns), padded on the left, and `past_key_values`
        for the first columns where there are any.

        Args:
            contexts: of the call.
            adapters: that of each context; where they differ, `adapter_names` is among the inputs. `None`: all are
                read with the one in use.
        """
        last, self._last = self._last, None
        inputs = self._padded(contexts)
        mixed = adapters is not None and len(set(adapters)) > 1
        if mixed:
            inputs["adapter_names"] = list(adapters or ())
        if not self.reads_in_parts:
            return inputs
        whole = [(name, tuple(one)) for name, one in zip(adapters or [""] * len(contexts), contexts, strict=True)]
        known: list[_Key] = []
        if last is not None and last.weights == self._weights(adapters is None):
            known = list(zip(last.adapters, last.tokens, strict=True))
        rows = _continued(known, whole)
        unread = [
            len(context) - len(known[row][1]) for (_, context), row in zip(whole, rows, strict=True) if row is not None
        ]
        if not unread:
            known, last = [], None
            if len(set(whole)) == len(whole):
                return inputs
        # All rows go on from the same column, so that only the left is padded, as in a call without memory.
        at_once = max(unread, default=1)
        new = {key for key, row in zip(whole, rows, strict=True) if row is None and len(key[1]) > at_once}
        fresh = {key: index for index, key in enumerate(sorted(new), start=len(known))}
        if fresh:
            names = [name for name, _ in fresh]
            read = self._read([context[:-at_once] for _, context in fresh], names, mixed)
            last = read if last is None else _joined(last, read)
        if last is None:
            return inputs
        found = [fresh.get(key) if row is None else row for key, row in zip(whole, rows, strict=True)]
        lengths = [
            0 if row is None else min(len(last.tokens[row]), len(context) - at_once)
            for (_, context), row in zip(whole, found, strict=True)
        ]
        _select(last, [row or 0 for row in found], lengths)
        return {**inputs, "past_key_values": last.cache}

    def keep(
        self,
        contexts: Sequence[Sequence[int]],
        mask: Tensor,
        replies: Sequence[Sequence[int]],
        cache: Any,
        adapters: Sequence[str] | None = None,
    ) -> None:
        """Remembers a call.

        Args:
            contexts: of the call.
            mask: the `attention_mask` of its inputs.
            replies: what the model generated.
            cache: the `past_key_values` it left behind.
            adapters: of the call.
        """
        if not self.reads_in_parts or not isinstance(cache, DynamicCache):
            return
        # The last token was drawn but not read.
        read = cache.get_seq_length() - mask.shape[1]
        lengths = torch.tensor([len(reply) for reply in replies], device=mask.device)
        held = torch.cat([mask, torch.arange(read, device=mask.device) < lengths[:, None]], dim=1)
        self._last = _Table(
            tokens=[(*context, *reply[:read]) for context, reply in zip(contexts, replies, strict=True)],
            adapters=[""] * len(contexts) if adapters is None else list(adapters),
            mask=held.bool(),
            cache=cache,
            weights=self._weights(adapters is None),
        )

    def _weights(self, with_adapters: bool) -> tuple[Any, ...]:
        """What changes whenever a weight is written to or replaced, and whenever another adapter is in use."""
        written = [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in self.model.parameters()]
        if not hasattr(self.model, "peft_config"):
            return (*written, with_adapters)
        from peft.tuners.tuners_utils import BaseTunerLayer

        adapters = [
            (module.disable_adapters, *(module.active_adapters if with_adapters else ()))
            for module in self.model.modules()
            if isinstance(module, BaseTunerLayer)
        ]
        return (*written, with_adapters, *adapters)

    def _padded(self, contexts: Sequence[Sequence[int]]) -> dict[str, Any]:
        width = max(map(len, contexts))
        ids = [[self.pad_token_id] * (width - len(context)) + list(context) for context in contexts]
        mask = [[0] * (width - len(context)) + [1] * len(context) for context in contexts]
        device = self.model.device
        return {"input_ids": torch.tensor(ids, device=device), "attention_mask": torch.tensor(mask, device=device)}

    def _read(self, contexts: Sequence[Sequence[int]], adapters: list[str], mixed: bool) -> _Table:
        inputs = self._padded(contexts)
        named = {"adapter_names": adapters} if mixed else {}
        output = cast(Any, self.model).generate(**inputs, **named, generation_config=self._read_only)
        return _Table(
            tokens=[tuple(context) for context in contexts],
            adapters=adapters,
            mask=inputs["attention_mask"].bool(),
            cache=output.past_key_values,
            weights=(),
        )


def _continued(known: Sequence[_Key], contexts: Sequence[_Key]) -> list[int | None]:
    """For each context a row that it begins with and goes on from; `None` where there seems to be none."""
    order = sorted(range(len(known)), key=known.__getitem__)
    ordered = [known[row] for row in order]
    found: list[int | None] = []
    for adapter, context in contexts:
        # In the order of a dictionary, what a word begins with stands before it, and mostly right before it.
        place = bisect_right(ordered, (adapter, context)) - 1
        own, tokens = ordered[place] if place >= 0 else ("", ())
        goes_on = place >= 0 and own == adapter and len(tokens) < len(context) and context[: len(tokens)] == tokens
        found.append(order[place] if goes_on else None)
    return found


def _select(table: _Table, rows: list[int], lengths: list[int]) -> None:
    """Makes the cache of a table that of other rows, of each the first tokens, aligned on the right.

    Args:
        table: its cache is changed in place, one layer after the other, so that no second one is ever held.
        rows: which row of the table each new row is.
        lengths: how many tokens of it, not all 0.
    """
    device = table.mask.device
    chosen, counts = torch.tensor(rows, device=device), torch.tensor(lengths, device=device)
    width = max(lengths)
    in_use = (~table.mask[chosen]).int().argsort(dim=1, stable=True)  # the columns in use first, in their order
    place = torch.arange(width, device=device) - (width - counts)[:, None]
    columns = in_use.gather(1, place.clamp(min=0))  # what lands on the left of a shorter row is masked
    for layer in _layers(table.cache):
        layer.keys = layer.keys[chosen[:, None], :, columns].transpose(1, 2)
        layer.values = layer.values[chosen[:, None], :, columns].transpose(1, 2)


def _joined(first: _Table, second: _Table) -> _Table:
    """The rows of both, padded on the left to the same number of columns."""
    width = max(first.mask.shape[1], second.mask.shape[1])

    def widen(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (0, 0, width - values.shape[-2], 0))

    for layer, other in zip(_layers(first.cache), _layers(second.cache), strict=True):
        layer.keys = torch.cat([widen(layer.keys), widen(other.keys)])
        layer.values = torch.cat([widen(layer.values), widen(other.values)])
    mask = torch.cat([widen(table.mask[..., None])[..., 0] for table in (first, second)])
    return _Table(
        tokens=first.tokens + second.tokens,
        adapters=first.adapters + second.adapters,
        mask=mask,
        cache=first.cache,
        weights=first.weights,
    )


def _layers(cache: DynamicCache) -> list[Any]:
    """The layers of a cache, all of the plain kind."""
    return cache.layers
