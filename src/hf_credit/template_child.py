"""What a confined process does with the templates of a downloaded tokenizer (`hf_credit.rollouts.rendering`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

_PLAIN = PreTrainedTokenizerBase()  # with templates that come as arguments


def render(messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Any:
    """Returns `apply_chat_template(messages, tokenize=False, **options)`."""
    return _PLAIN.apply_chat_template(messages, tokenize=False, **options)


def parse(text: str, template: Mapping[str, Any], prefix: str, tools: Sequence[Mapping[str, Any]]) -> Any:
    """Returns `parse_response` of a reply's text, and of the text before it."""
    return _PLAIN.parse_response(text, template, prefix=prefix, tools=tools)


# What a library imports or opens at the first call, or the first error, must be there before the process is confined.
with suppress(ZeroDivisionError):
    _EVERY = "{{ strftime_now('%B %d, %Y') }}{{ messages | tojson }}{{ 1 / 0 }}"
    render([{"role": "user", "content": "?"}], {"chat_template": _EVERY})
