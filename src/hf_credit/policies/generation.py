"""Sampling from a transformers model without a trainer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import GenerationMode

from hf_credit.policies.prefix_cache import PrefixCache
from hf_credit.policies.seeded_draws import seeded
from hf_credit.rollouts import GenerateFn, Generation
from hf_credit.rollouts.reply_ends import end_tokens


def sampler(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_new_tokens: int = 256,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
) -> GenerateFn:
    """A `GenerateFn` over `model.generate`, drawing from torch's random stream.

    Args:
        model: a causal language model, used in evaluation mode.
        tokenizer: for the padding and end-of-text tokens.
        max_new_tokens: the longest reply in tokens.
        temperature: of the sampling; 0 takes the most probable token always.
        top_p: nucleus of the sampling, 1 for all.
        top_k: how many of the most probable tokens to sample from, 0 for all.

    Raises:
        ValueError: a sampling parameter is out of range.
    """
    if max_new_tokens < 1 or temperature < 0 or not 0 < top_p <= 1 or top_k < 0:
        raise ValueError(
            "sampling needs max_new_tokens >= 1, temperature >= 0, 0 < top_p <= 1 and top_k >= 0, got "
            f"{max_new_tokens}, {temperature}, {top_p} and {top_k}; correct the one that is out of range."
        )
    draw = {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": top_k}
    config = GenerationConfig(
        max_new_tokens=max_new_tokens,
        eos_token_id=end_tokens(model, tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        repetition_penalty=1.0,  # a penalty among the model's own defaults would bend the distribution
        disable_compile=True,
        **(draw if temperature > 0 else {"do_sample": False}),
    )

    return _StandAlone(model, config)


class Replies:
    """A `GenerateFn` with all that is asked of one, by one method."""

    def __call__(self, contexts: Sequence[Sequence[int]]) -> Sequence[Generation]:
        return self.mixed(contexts)

    def seeded(self, contexts: Sequence[Sequence[int]], seeds: Sequence[int | None]) -> Sequence[Generation]:
        """Replies each drawn with the random numbers that its seed names; `None` draws from torch's stream."""
        return self.mixed(contexts, None, seeds)

    def mixed(
        self,
        contexts: Sequence[Sequence[int]],
        adapters: Sequence[str] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> Sequence[Generation]:
        """Replies, each by an adapter of its own, in one call.

        Args:
            contexts: at least one.
            adapters: that of each context; the one in use if `None`. Where all are the same, it must be the one in
                use, which is faster; where they differ, the model must be one for which
                `hf_credit.policies.role_policies.can_mix` holds.
            seeds: as in `seeded`; `None` names none.
        """
        raise NotImplementedError


class PrefixSampler(Replies):
    """A `GenerateFn` over `model.generate` that does not read again what it read or wrote in the last call.

    Its inputs are those of a call without memory, so that every setting of the sampling has the same effect. It
    holds the keys and values of one call; drop it to free them. The model is in evaluation mode meanwhile, because
    what dropout made of a token must not be kept, and in its own mode again afterwards.

    Args:
        model: a causal language model.
        config: of the generation, one for which `can_continue` holds. Names the end tokens and the padding token.
    """

    def __init__(self, model: PreTrainedModel, config: GenerationConfig) -> None:
        self.model = model
        self.config = copy.deepcopy(config)
        self.config.return_dict_in_generate = True
        ends = config.eos_token_id
        self._ends = set(ends if isinstance(ends, list) else [ends])
        self._memory = PrefixCache(model, cast(int, config.pad_token_id))

    def mixed(
        self,
        contexts: Sequence[Sequence[int]],
        adapters: Sequence[str] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> Sequence[Generation]:
        config, processors = self.config, LogitsProcessorList()
        if seeds is not None:
            config, processors = seeded(self.config, seeds, self.model.device)
        with evaluating(self.model):
            inputs = self._memory.inputs(contexts, adapters)
            output = cast(Any, self.model).generate(**inputs, generation_config=config, logits_processor=processors)
            width = inputs["input_ids"].shape[1]
            replies = [_until_end(reply, self._ends) for reply in output.sequences[:, width:].tolist()]
            self._memory.keep(contexts, inputs["attention_mask"], replies, output.past_key_values, adapters)
        return [Generation(ids=reply) for reply in replies]


class _StandAlone(PrefixSampler):
    """Replies of a model that nobody is training."""

    def mixed(self, *asked: Any, **named: Any) -> Sequence[Generation]:
        self.model.eval()
        with torch.inference_mode():
            return super().mixed(*asked, **named)


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """A model in evaluation mode, and every module of it in its own mode again afterwards.

    Layers in four bits stay as they are: they have no dropout, and on a processor bitsandbytes would take evaluation
    for the end of training and repack their weights.
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


def room_for_context(model: Any, max_new_tokens: int) -> int | None:
    """The longest context in tokens that leaves room for a reply, `None` where the model knows no limit.

    Raises:
        ValueError: a reply may take all positions.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return None if positions is None else room_beside(max_new_tokens, positions)


def room_beside(max_new_tokens: int, positions: int) -> int:
    """How many of the positions a reply leaves to its context.

    Raises:
        ValueError: none.
    """
    if max_new_tokens >= positions:
        raise ValueError(
            f"a reply must leave room for its context, got replies of up to {max_new_tokens} tokens for a model of "
            f"{positions} positions, so that no reply fits; lower max_completion_length, or --max-new-tokens."
        )
    return positions - max_new_tokens


def can_continue(config: GenerationConfig) -> bool:
    """Whether a generation with these settings may go on from keys and values of an earlier one.

    It draws one reply to a context, token by token, and keeps keys and values in transformers' ordinary cache.
    """
    return (
        config.get_generation_mode() in (GenerationMode.SAMPLE, GenerationMode.GREEDY_SEARCH)
        and config.num_return_sequences in (None, 1)
        and config.cache_implementation is None
        and config.prefill_chunk_size is None
        and config.use_cache is not False
    )


def _until_end(ids: list[int], ends: set[int | None]) -> list[int]:
    """The reply up to its first end token, that one included."""
    for position, token in enumerate(ids):
        if token in ends:
            return ids[: position + 1]
    return ids
