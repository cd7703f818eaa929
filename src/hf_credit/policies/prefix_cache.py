"""A cache of the keys and values of earlier turns, so that the next turn computes only its new tokens."""

from __future__ import annotations

import logging
import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.generation import GenerateDecoderOnlyOutput

from hf_credit.rollouts import Context

logger = logging.getLogger(__name__)

CACHE = "cache" if "cache" in GenerateDecoderOnlyOutput.__dataclass_fields__ else "past_key_values"
"""The name of a cache in the arguments of `generate` and in its output; transformers 5.24 renamed it."""

_ATTENTION = ("sdpa", "eager")  # implementations that depend on the mask and the position ids only
_SAVED = 32  # tokens of each context that are worth a call of the model
_TRIED: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()  # whether a model reads in parts
_TRIED_TOKENS = 72
_Key = tuple[str, tuple[int, ...]]
"""An adapter, and tokens that were read with it."""


def reads_in_parts(model: PreTrainedModel) -> bool:
    """Whether a model computes the same from a context in parts, with a cache, as from the whole context.

    This holds with torch's attention over the whole context in every layer, without virtual tokens before it.
    """
    if has_virtual_tokens(model):
        return False
    layers = DynamicCache(config=model.config.get_text_config(decoder=True)).layers
    return (
        bool(layers)
        and all(type(layer) is DynamicLayer for layer in layers)
        and model.config._attn_implementation in _ATTENTION
    )


def has_virtual_tokens(model: Any) -> bool:
    """Whether an adapter puts virtual tokens before every row."""
    return bool(getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False))


def alike(*ways: Callable[[], Tensor]) -> bool:
    """Whether a model computes the same in another way as in a plain one, but for rounding.

    The share of vectors v with |v - plain v| > sqrt(precision) |plain v| is at most 2 % above twice that of a plain
    way with other padding: rounding may send a token to other experts. A way that fails is another.

    Args:
        ways: the other, the plain one, and the plain one with other padding; of shape (..., width).
    """
    try:
        tried, plain, again = (way() for way in ways)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return False
    bound = max(torch.finfo(kind).eps for kind in (plain.dtype, torch.float32)) ** 0.5 * plain.double().norm(dim=-1)
    shares = [((one.double() - plain.double()).norm(dim=-1) <= bound).double().mean() for one in (tried, again)]
    return bool(1 - shares[0] <= 2 * (1 - shares[1]) + 0.02)


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Rows of tokens with their keys and values.

    Attributes:
        adapters: the adapter that read each row, if the call names one for each row.
        mask: of shape (rows, columns), true in the columns of the tokens, in order.
        cache: keys and values by layer, of shape (rows, heads, columns, head width).
        weights: identifies the weights and active adapters that read them.
    """

    tokens: list[tuple[int, ...]]
    adapters: list[str]
    mask: Tensor
    cache: DynamicCache
    weights: tuple[Any, ...]


class PrefixCache:
    """The inputs of generation calls, with the keys and values of the last call as their prefix.

    It holds one call. A context continues from the keys and values of what it shares with a context and reply of that
    call from the first token on; contexts that share less are read first, equal ones once, so that one call generates
    all replies. What all of these begin with is read once if it is long. Everything is read again if a weight or the
    active adapter has changed, and with a model for which `reads_in_parts` is false. If calls name the adapter of each
    context, a context continues only from what its adapter read.

    Args:
        model: a causal language model in evaluation mode.
        pad_token_id: for padding.
    """

    def __init__(self, model: PreTrainedModel, pad_token_id: int) -> None:
        self.model = model
        self.pad_token_id = pad_token_id
        self.reads_in_parts = reads_in_parts(model)
        # `generate` must generate a token, which is ignored; greedy, it leaves the random generator alone.
        self._read_only = GenerationConfig(
            max_new_tokens=1,
            do_sample=False,
            pad_token_id=pad_token_id,
            disable_compile=True,
            return_dict_in_generate=True,
            output_logits=True,
        )
        self._last: _Table | None = None

    def inputs(self, contexts: Sequence[Context], adapters: Sequence[str] | None = None) -> dict[str, Any]:
        """`input_ids` and `attention_mask` of shape (contexts, columns), padded on the left, and, if there are any,
        the cache of the first columns, as `CACHE`.

        Args:
            adapters: the adapter of each context; the active one if `None`. If they differ, the inputs include
                `adapter_names`.
        """
        last, self._last = self._last, None
        self.reads_in_parts = self.reads_in_parts and self._tried()
        inputs = self.padded(contexts)
        mixed = adapters is not None and len(set(adapters)) > 1
        if mixed:
            inputs["adapter_names"] = list(adapters or ())
        if not self.reads_in_parts:
            return inputs
        keys = [(name, tuple(ids)) for name, ids in zip(adapters or [""] * len(contexts), contexts, strict=True)]
        known: list[_Key] = []
        if last is not None and last.weights == self._weights(adapters is None):
            known = list(zip(last.adapters, last.tokens, strict=True))
        found = _longest_beginnings(known, keys)
        unread = [len(context) - held for (_, context), (_, held) in zip(keys, found, strict=True)]
        # All rows continue from the same column, so that padding is on the left only, as in a call without a cache.
        at_once = _columns(keys, unread, 0 if mixed else _shared(contexts))
        lengths = [max(0, len(context) - at_once) for context in contexts]
        if not any(lengths):
            return inputs
        new = {key for key, rest in zip(keys, unread, strict=True) if rest > at_once}
        if len(new) == len(set(keys)):
            known, last = [], None
        fresh = {key: index for index, key in enumerate(sorted(new), start=len(known))}
        if fresh:
            names = [name for name, _ in fresh]
            read = self._read([context[:-at_once] for _, context in fresh], names, mixed)
            last = read if last is None else _joined(last, read)
        held_by = cast(_Table, last)
        _select(held_by, [fresh.get(key, row) for key, (row, _) in zip(keys, found, strict=True)], lengths)
        return {**inputs, CACHE: held_by.cache}

    def keep(
        self,
        contexts: Sequence[Context],
        mask: Tensor,
        replies: Sequence[Sequence[int]],
        cache: Any,
        adapters: Sequence[str] | None = None,
    ) -> None:
        """Stores a call in place of the last one; `mask` is the `attention_mask` of its inputs."""
        if not self.reads_in_parts or not isinstance(cache, DynamicCache):
            return
        # The last token was sampled but not read.
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
        """A value that changes when a weight is modified or replaced, or another adapter becomes active."""
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

    def _tried(self) -> bool:
        """Whether the model reads two contexts in parts as it reads them whole, tried once for a model."""
        model = cast(Any, self.model)
        key = model.get_base_model() if hasattr(model, "get_base_model") else model
        if key in _TRIED:
            return _TRIED[key]
        _TRIED[key] = True  # for the cache that tries it
        config = self.model.config.get_text_config(decoder=True)
        most = min(getattr(config, "max_position_embeddings", None) or _TRIED_TOKENS, _TRIED_TOKENS) - 2
        draws, cache = random.Random(0), PrefixCache(self.model, self.pad_token_id)
        whole = [tuple(draws.choices(range(config.vocab_size), k=length)) for length in (most, most * 3 // 4)]
        parts = [ids[: len(ids) * 2 // 3] for ids in whole]

        def read(inputs: dict[str, Any]) -> Any:
            return model.generate(**inputs, generation_config=self._read_only)

        def in_parts() -> Tensor:
            inputs = cache.inputs(parts)
            cache.keep(parts, inputs["attention_mask"], [[], []], getattr(read(inputs), CACHE))
            return cast(Tensor, read(cache.inputs(whole)).logits[0])

        _TRIED[key] = alike(in_parts, *(lambda more=more: read(self.padded(whole, more)).logits[0] for more in (0, 2)))
        if not _TRIED[key]:
            logger.warning("the policy reads every context from its start: tried in parts, it gave other logits.")
        return _TRIED[key]

    def padded(self, contexts: Sequence[Context], more: int = 0) -> dict[str, Any]:
        """`input_ids` and `attention_mask` of whole contexts, padded on the left, with `more` further columns."""
        width = max(map(len, contexts)) + more
        ids = [[self.pad_token_id] * (width - len(context)) + list(context) for context in contexts]
        mask = [[0] * (width - len(context)) + [1] * len(context) for context in contexts]
        device = self.model.device
        return {"input_ids": torch.tensor(ids, device=device), "attention_mask": torch.tensor(mask, device=device)}

    def _read(self, contexts: Sequence[Context], adapters: list[str], mixed: bool) -> _Table:
        inputs = self.padded(contexts)
        named: dict[str, Any] = {"adapter_names": adapters} if mixed else {}
        if not mixed and (shared := _shared(contexts)):
            first = self._read([contexts[0][:shared]], adapters[:1], mixed)
            width = inputs["input_ids"].shape[1]
            _select(first, [0] * len(contexts), [shared - width + len(context) for context in contexts])
            named[CACHE] = first.cache
        output = cast(Any, self.model).generate(**inputs, **named, generation_config=self._read_only)
        return _Table(
            tokens=[tuple(context) for context in contexts],
            adapters=adapters,
            mask=inputs["attention_mask"].bool(),
            cache=getattr(output, CACHE),
            weights=(),
        )


def _shared(contexts: Sequence[Context]) -> int:
    """The number of first tokens that contexts share; 0 where little is saved by reading them once, first."""
    shortest, longest = min(map(len, contexts)), max(map(len, contexts))
    shared = min(_common(min(map(tuple, contexts)), max(map(tuple, contexts))), shortest - 1)
    return shared if len(contexts) > 1 and shared - (longest - shortest) >= max(_SAVED, longest // 8) else 0


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """The number of first tokens that both have."""
    most = min(len(first), len(second))
    return bisect_left(range(1, most + 1), True, key=lambda count: first[:count] != second[:count])


def _longest_beginnings(known: Sequence[_Key], contexts: Sequence[_Key]) -> list[tuple[int, int]]:
    """For each context the row of `known` that shares most first tokens with it, and how many; not all, as a call must
    read one."""
    order = sorted(range(len(known)), key=known.__getitem__)
    ordered = [known[row] for row in order]
    found = []
    for adapter, context in contexts:
        # In lexicographic order, no row shares more with a context than one of its two neighbours.
        index = bisect_left(ordered, (adapter, context))
        near = [place for place in (index - 1, index) if 0 <= place < len(ordered) and ordered[place][0] == adapter]
        held, row = max(((_common(ordered[place][1], context), order[place]) for place in near), default=(0, 0))
        found.append((row, min(held, len(context) - 1)))
    return found


def _columns(contexts: Sequence[_Key], unread: Sequence[int], shared: int) -> int:
    """How many last tokens of all contexts to read together, so that least is read in all. Contexts of which more is
    `unread` are read up to there in a call before, from their start: equal ones once, `shared` tokens once for all."""
    rows = dict(zip(contexts, unread, strict=True))

    def read(columns: int) -> int:
        before = [len(context) for (_, context), rest in rows.items() if rest > columns]
        first = len(before) * (max(before) - columns + _SAVED) - (len(before) - 1) * shared if before else 0
        return len(contexts) * columns + first

    return min(sorted({1, *unread}, reverse=True), key=read)


def _select(table: _Table, rows: list[int], lengths: list[int]) -> None:
    """Replaces the rows of a cache by the first `lengths` tokens of `rows`, aligned on the right."""
    device = table.mask.device
    chosen, counts = torch.tensor(rows, device=device), torch.tensor(lengths, device=device)
    width = max(lengths)
    in_use = (~table.mask[chosen]).int().argsort(dim=1, stable=True)  # the columns in use first, in order
    index = torch.arange(width, device=device) - (width - counts)[:, None]
    columns = in_use.gather(1, index.clamp(min=0))  # the left of a shorter row is masked
    layers: list[Any] = table.cache.layers
    for layer in layers:  # memory never holds two caches
        layer.keys = layer.keys[chosen[:, None], :, columns].transpose(1, 2)
        layer.values = layer.values[chosen[:, None], :, columns].transpose(1, 2)


def _joined(first: _Table, second: _Table) -> _Table:
    """The rows of both tables, padded on the left to the same number of columns."""
    width = max(first.mask.shape[1], second.mask.shape[1])

    def widen(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (0, 0, width - values.shape[-2], 0))

    layers: Any = zip(first.cache.layers, second.cache.layers, strict=True)
    for layer, other in layers:
        layer.keys = torch.cat([widen(layer.keys), widen(other.keys)])
        layer.values = torch.cat([widen(layer.values), widen(other.values)])
    mask = torch.cat([widen(table.mask[..., None])[..., 0] for table in (first, second)])
    return replace(first, tokens=first.tokens + second.tokens, adapters=first.adapters + second.adapters, mask=mask)
