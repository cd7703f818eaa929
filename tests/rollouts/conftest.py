"""A tokenizer small enough to read: printable ASCII, and a few longer tokens, so that a text has several spellings."""

from __future__ import annotations

import string

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from hf_credit.rollouts import Chat

SPECIAL = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
MERGES = [("a", "b"), ("ab", "c"), ("o", "n"), (" ", "1"), ("\n", "\n")]
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('no such role') }}{% endif %}"
    "<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Decoding and encoding again can change its tokens: `a b` becomes `ab`."""
    characters = [chr(code) for code in range(32, 127)] + ["\n"]
    vocabulary = [*SPECIAL, *characters, *("".join(pair) for pair in MERGES)]
    assert set(string.ascii_letters + string.digits) <= set(characters)
    model = Tokenizer(models.BPE({token: index for index, token in enumerate(vocabulary)}, MERGES))
    model.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=model,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=SPECIAL[2:],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


@pytest.fixture(scope="session")
def chat(tokenizer: PreTrainedTokenizerFast) -> Chat:
    return Chat(tokenizer)
