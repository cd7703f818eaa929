"""Runs the templates of a tokenizer: our own in this process, a downloaded one in a confined process that is kept.

A chat template can loop, or multiply a text, in a single instruction of C that no signal interrupts; a pattern of a
response template can take exponential time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from code_sandbox.service import Failed, Service
from hf_credit.rollouts.interaction import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RENDERING_SECONDS = 60.0
"""Wall-clock limit of the rendering of a conversation, which takes milliseconds."""
PARSING_SECONDS = 10.0
"""Wall-clock limit of the reading of a reply by a response template."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The chat template of micro policies."""

TOOL_CHAT_TEMPLATE = (
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool.function.name }}: "
    "{{ tool.function.parameters.properties | join(', ') }}, {% endfor %}<|end|>{% endif %}"
    "{% for message in messages %}<|{{ 'user' if message.role == 'tool' else message.role }}|>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "<tool_call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</tool_call>"
    "{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Theirs for tasks with tools. It shows the names of tools and of their arguments."""

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": "<|end|>", "content": "text"},
    },
}
"""The format of tool calls in their replies, for `tokenizer.parse_response`."""

_OURS = (CHAT_TEMPLATE, TOOL_CHAT_TEMPLATE)
_SERVICE = Service("hf_credit.template_child")


def render(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], prompt: bool, options: Mapping[str, Any]
) -> str:
    """Returns the text of a conversation by the tokenizer's chat template.

    Args:
        prompt: whether to add what the template writes before a reply.
        options: arguments of the template.

    Raises:
        TemplateError, TypeError, AttributeError: the template raises.
        Exceeded: it takes too much time or memory.
    """
    options = {**options, "add_generation_prompt": prompt}
    if tokenizer.chat_template in _OURS:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, **options))
    template = tokenizer.get_chat_template(tools=options.get("tools"))
    options = {**tokenizer.special_tokens_map, **options, "chat_template": template}
    try:
        return str(_SERVICE.call("render", RENDERING_SECONDS, list(messages), options))
    except Failed as error:
        kinds: dict[str, type[Exception]] = {"TypeError": TypeError, "AttributeError": AttributeError}
        raise kinds.get(error.kind, TemplateError)(str(error)) from None


def parse(
    tokenizer: PreTrainedTokenizerBase, text: str, prefix: str, tools: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Returns the parts of a reply by the tokenizer's response template.

    Args:
        text: the reply, with special tokens.
        prefix: the text before it.
        tools: of the request.

    Raises:
        ValueError: the template does not read it.
        Exceeded: it takes too much time or memory.
    """
    template, known = tokenizer.response_template, [dict(tool) for tool in tools]
    if template == RESPONSE_TEMPLATE:
        return dict(tokenizer.parse_response(text, prefix=prefix, tools=known))
    try:
        return dict(_SERVICE.call("parse", PARSING_SECONDS, text, template, prefix, known))
    except (Failed, TypeError) as error:
        raise ValueError(str(error)) from None
