"""Micro policies: ordinary transformers models for a CPU, built from a task's text, warmed up on scripted play."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from hf_credit.environments import Environment
from hf_credit.policies.micro_settings import MICRO_SAMPLING as MICRO_SAMPLING
from hf_credit.policies.micro_settings import MicroConfig as MicroConfig
from hf_credit.rollouts.rendering import CHAT_TEMPLATE, IMAGE_TOKEN, RESPONSE_TEMPLATE, TOOL_CHAT_TEMPLATE, of_parts
from hf_credit.rollouts.scripts import random_texts
from hf_credit.tokenizer_process import UNIT

RANDOM_EPISODES = 32  # their texts define the vocabulary


def build_tokenizer(environment: Environment[Any], episodes: int = RANDOM_EPISODES) -> PreTrainedTokenizerFast:
    """`tokenizer_of` the instructions, observations and actions of an environment.

    Args:
        episodes: number of random episodes from which the texts are taken.
    """
    return tokenizer_of(random_texts(environment, episodes))


def tokenizer_of(texts: Iterable[str], tools: bool = False, images: bool = False) -> PreTrainedTokenizerFast:
    """A tokenizer whose vocabulary is the words, numbers, tags and single characters of `texts`.

    Args:
        texts: contexts and replies of the task.
        tools: whether to use `TOOL_CHAT_TEMPLATE` and `RESPONSE_TEMPLATE`.
        images: whether messages have images, for `hf_credit.policies.micro_vision`.
    """
    units: dict[str, None] = {}
    characters: dict[str, None] = {}
    for text in texts:
        units.update(dict.fromkeys(re.findall(UNIT, text)))
        characters.update(dict.fromkeys(text))
    further = ["<|system|>", "<|user|>", "<|assistant|>", *([IMAGE_TOKEN] if images else [])]
    template = TOOL_CHAT_TEMPLATE if tools else CHAT_TEMPLATE
    vocabulary = dict.fromkeys(["<|pad|>", "<|end|>", "<|unknown|>", *further, *sorted(characters), *sorted(units)])
    tokenizer = Tokenizer(
        models.WordPiece(
            {unit: index for index, unit in enumerate(vocabulary)},
            unk_token="<|unknown|>",
            continuing_subword_prefix="",
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(UNIT), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        unk_token="<|unknown|>",
        additional_special_tokens=further,
        chat_template=of_parts(template) if images else template,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    if tools:
        made.response_template = RESPONSE_TEMPLATE
    return made


def build_model(tokenizer: PreTrainedTokenizerFast, config: MicroConfig, context: int = 4096) -> Qwen3ForCausalLM:
    """A Qwen3 model with random weights in float32.

    Args:
        tokenizer: for the vocabulary and the end and padding tokens.
        config: the sizes and the seed.
        context: maximum length of a sequence in tokens.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        return Qwen3ForCausalLM(text_config(tokenizer, config, context))


def text_config(tokenizer: PreTrainedTokenizerFast, config: MicroConfig, context: int = 4096) -> Qwen3Config:
    """The configuration of `build_model`."""
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=4 * config.hidden_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        head_dim=2 * config.hidden_size // config.heads,
        max_position_embeddings=context,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},  # the cells of a board are a few apart
        initializer_range=config.hidden_size**-0.5,  # the default 0.02 is for much wider models
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
