"""Sampling from a transformers model, also while it is trained, and its log-probabilities of replies."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.generation import GenerationMode

from hf_credit.playing import Sampling
from hf_credit.policies.prefix_cache import CACHE, PrefixCache
from hf_credit.policies.seeded_draws import SampledLogprobs, seeded
from hf_credit.rollouts import Context, GenerateFn, Generation
from hf_credit.rollouts.media import Media, media_of
from hf_credit.rollouts.reply_ends import end_tokens


def sampler(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | ProcessorMixin,
    *,
    logprobs: bool = False,
    **sampling: Any,
) -> GenerateFn:
    """A `GenerateFn` with `model.generate`, which draws from torch's random generator.

    Args:
        model: a causal language model, used in evaluation mode.
        tokenizer: for the padding and end-of-text tokens; a processor for contexts that have more than text.
        logprobs: whether replies have the log-probabilities that they were sampled with.
        **sampling: the parameters of a `hf_credit.tasks.Sampling`.

    Raises:
        ValueError: a sampling parameter is out of range.
    """
    checked, media = Sampling(**sampling), media_of(tokenizer)
    draw = {"do_sample": True, "temperature": checked.temperature, "top_p": checked.top_p, "top_k": checked.top_k}
    config = GenerationConfig(
        max_new_tokens=checked.max_new_tokens,
        repetition_penalty=checked.repetition_penalty,
        eos_token_id=end_tokens(model, tokenizer),
        pad_token_id=media.tokenizer.pad_token_id,
        suppress_tokens=media.unsampled or None,
        disable_compile=True,
        **({**draw, "min_p": checked.min_p or None} if checked.temperature > 0 else {"do_sample": False}),
    )
    return PrefixSampler(model, config, logprobs, media)


class PrefixSampler:
    """A `GenerateFn` with `model.generate` that reuses the keys and values of its last call.

    The inputs include the whole contexts, so every sampling setting has the same effect as without a cache. It holds
    the keys and values of one call; `forgotten` frees them. The model is in evaluation mode during a call, because
    cached values must not depend on dropout.

    Args:
        policy: the model; or, in training, a context that returns it ready to generate, entered for each call.
        config: generation settings with end and padding tokens, for which `can_continue` holds.
        logprobs: as in `sampler`.
        media: what contexts have besides text, which are then read from their start; text alone if `None`.
    """

    def __init__(
        self,
        policy: PreTrainedModel | Callable[[], AbstractContextManager[Any]],
        config: GenerationConfig,
        logprobs: bool = False,
        media: Media | None = None,
    ) -> None:
        self.policy, self.config, self.logprobs, self.media = policy, config, logprobs, media or Media(None)
        self.cache: PrefixCache | None = None

    def __call__(self, contexts: Sequence[Context]) -> Sequence[Generation]:
        return self.mixed(contexts)

    def seeded(self, contexts: Sequence[Context], seeds: Sequence[int | None]) -> Sequence[Generation]:
        """One reply to each context, sampled with its seed; `None` draws from torch's random generator."""
        return self.mixed(contexts, None, seeds)

    def mixed(
        self,
        contexts: Sequence[Context],
        adapters: Sequence[str] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> Sequence[Generation]:
        """One reply to each context, all in one batch.

        Args:
            contexts: at least one.
            adapters: the adapter of each context; the active one if `None`. If all are the same, it must be active;
                otherwise `hf_credit.policies.role_policies.can_mix` must hold for the model.
            seeds: as in `seeded`; no seeds if `None`.
        """
        kept, processors = SampledLogprobs(self.config), LogitsProcessorList()
        config = copy.deepcopy(self.config)
        config.return_dict_in_generate = True
        policy: Any = self.policy
        opened: AbstractContextManager[Any] = nullcontext(policy) if isinstance(policy, torch.nn.Module) else policy()
        # In inference mode autocast would cast all weights again for each token.
        with opened as model, torch.no_grad(), evaluating(model), without_defaults(model):
            if self.cache is None or self.cache.model is not model:
                self.cache = PrefixCache(model, cast(int, config.pad_token_id))
            if seeds is not None:
                config, processors = seeded(config, seeds, model.device)
            if self.logprobs:
                processors.insert(0, kept)
            if others := self.media.of_rows((context, ()) for context in contexts):
                inputs = self.cache.padded(contexts)
                others = self.media.inputs(model, inputs["input_ids"], others["media"])
                inputs |= {name: value for name, value in others.items() if value is not None}
            else:
                inputs = self.cache.inputs(contexts, adapters)
            output = model.generate(**inputs, generation_config=config, logits_processor=processors)
            width, ends = inputs["input_ids"].shape[1], config.eos_token_id
            among = set(ends if isinstance(ends, list) else [ends])
            replies = [_until_end(reply, among) for reply in output.sequences[:, width:].tolist()]
            if not others:
                self.cache.keep(contexts, inputs["attention_mask"], replies, getattr(output, CACHE), adapters)
        return generations(replies, kept.of(output.sequences) if self.logprobs else None)

    @contextmanager
    def forgotten(self) -> Iterator[None]:
        """Drops all keys and values on exit, also on errors, to free their memory for training."""
        try:
            yield
        finally:
            self.cache = None


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Puts a model into evaluation mode, and each of its modules back into its mode on exit.

    Layers in four bits keep their mode: they have no dropout, and on a CPU bitsandbytes repacks their weights in
    evaluation mode.
    """
    training = [
        module
        for module in model.modules()
        if module.training and not hasattr(getattr(module, "weight", None), "quant_state")
    ]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def without_defaults(model: Any) -> Iterator[None]:
    """Context in which `model.generate` samples by its arguments alone: what they leave unset is neutral.

    Elsewhere, transformers takes it from the model's own `generation_config.json`.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    config, inner.generation_config = inner.generation_config, GenerationConfig()
    try:
        yield
    finally:
        inner.generation_config = config


def max_context_tokens(model: Any, max_new_tokens: int) -> int | None:
    """The maximum length of a context before a reply of `max_new_tokens`; `None` if the model has no limit.

    Raises:
        ValueError: the reply takes all positions.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return None if positions is None else context_positions(max_new_tokens, positions)


def context_positions(max_new_tokens: int, positions: int) -> int:
    """The positions that remain for the context of a reply.

    Raises:
        ValueError: there is none.
    """
    if max_new_tokens >= positions:
        raise ValueError(
            f"a reply must be shorter than the model's {positions} positions, got a maximum of {max_new_tokens} "
            "tokens; lower max_completion_length, or --max-new-tokens."
        )
    return positions - max_new_tokens


def lower_of(*limits: int | None) -> int | None:
    """The lowest of some limits; `None` is no limit."""
    return min((one for one in limits if one is not None), default=None)


def can_continue(config: GenerationConfig) -> bool:
    """Whether a generation with these settings may reuse keys and values of an earlier one.

    That is, it samples one reply to a context, token by token, with transformers' default cache.
    """
    return (
        config.get_generation_mode() in (GenerationMode.SAMPLE, GenerationMode.GREEDY_SEARCH)
        and config.num_return_sequences in (None, 1)
        and config.cache_implementation is None
        and config.prefill_chunk_size is None
        and config.use_cache is not False
    )


def generations(ids: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float | None]] | None) -> list[Generation]:
    """Joins replies and their log-probabilities, if the sampler reports any, also of what follows a reply; an unknown
    one is NaN."""
    if logprobs is None:
        return [Generation(ids=reply) for reply in ids]
    known = [[math.nan if value is None else value for value in reply] for reply in logprobs]
    return [Generation(ids=reply, logprobs=own[: len(reply)]) for reply, own in zip(ids, known, strict=True)]


def _until_end(ids: list[int], ends: set[int | None]) -> list[int]:
    return ids[: next((place for place, token in enumerate(ids, start=1) if token in ends), len(ids))]


_LOGITS_AT_ONCE = 2**27
_TOKENS_AT_ONCE = 2**16


@torch.inference_mode()
def reply_logprobs(
    model: PreTrainedModel,
    pairs: Sequence[tuple[Context, Sequence[int]]],
    temperature: float = 1.0,
    media: Media | None = None,
) -> list[tuple[float, ...]]:
    """log pi(y_t | x, y_<t) of each token of each reply, in nats.

    A context that goes on from the pair before it is read once, with that pair.

    Args:
        model: a causal language model, used in evaluation mode.
        pairs: a context x of at least one token, and a reply y to it, in tokens.
        temperature: divides the logits, above 0.
        media: as in `PrefixSampler`.
    """
    found: list[tuple[float, ...]] = [()] * len(pairs)
    at_once = max(1, min(_TOKENS_AT_ONCE, _LOGITS_AT_ONCE // model.config.get_text_config().vocab_size))
    rows: list[list[int]] = []  # of each its pairs
    before: list[int] = []
    scored = 0  # tokens of the row
    for index, (context, reply) in enumerate(pairs):
        scored += len(reply)
        if before and list(context[: len(before)]) == before and scored <= at_once:
            rows[-1].append(index)
        else:
            rows.append([index])
            scored = len(reply)
        before = [*context, *reply]
    rows.sort(key=lambda row: sum(map(len, pairs[row[-1]])))
    while rows:
        longest = sum(map(len, pairs[rows[-1][-1]]))
        part, rows = rows[-max(at_once // longest, 1) :], rows[: -max(at_once // longest, 1)]
        # Attention is causal, so any token will do as padding on the right.
        ids = torch.zeros(len(part), longest, dtype=torch.long)
        for row, own in enumerate(part):
            whole = [*itertools.chain(*pairs[own[-1]])]
            ids[row, : len(whole)] = torch.tensor(whole)
        ids = ids.to(model.device)
        row_media = (media or Media(None)).of_rows((pairs[own[-1]][0], ()) for own in part)
        others = media.inputs(model, ids, row_media["media"]) if media and row_media else {}
        tokens = [
            (row, len(pairs[index][0]) + place - 1, token)
            for row, own in enumerate(part)
            for index in own
            for place, token in enumerate(pairs[index][1])
        ]
        kept, columns = torch.tensor([column for _, column, _ in tokens], dtype=torch.long).unique(return_inverse=True)
        inputs: Any = {"input_ids": ids, "use_cache": False, "logits_to_keep": kept.to(ids.device), **others}
        with evaluating(model):
            logits = cast(Any, model)(**inputs).logits
        found_here: list[float] = []
        for first in range(0, len(tokens), at_once):  # whole distributions in float64 are large
            some, places = tokens[first : first + at_once], columns[first : first + at_once]
            own = logits[[row for row, _, _ in some], places].double().cpu() / temperature
            replies = torch.tensor([token for *_, token in some], dtype=torch.long)
            found_here += own.log_softmax(-1).gather(-1, replies[:, None]).squeeze(-1).tolist()
        values = iter(found_here)
        for index in itertools.chain(*part):
            found[index] = tuple(itertools.islice(values, len(pairs[index][1])))
    return found
