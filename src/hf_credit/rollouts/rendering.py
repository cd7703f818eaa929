"""Runs the templates of a tokenizer: our own in this process, a downloaded one in a confined process that is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from hf_credit.rollouts.interaction import Message
from hf_credit.tokenizer_process import PROCESS

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

IMAGE_TOKEN = "<|image|>"

_CONTENTS = re.compile(r"{{ message(\['content'\]|\.content) }}")


def of_parts(template: str) -> str:
    """Returns the template of a micro policy for one that sees, whose messages are text or lists of parts."""
    text = "{% if message.content is string %}{{ message.content }}{% else %}"
    part = "{{ '" + IMAGE_TOKEN + "' if part.type == 'image' else part.text }}"
    return _CONTENTS.sub(text + "{% for part in message.content or [] %}" + part + "{% endfor %}{% endif %}", template)


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

_OURS = (CHAT_TEMPLATE, TOOL_CHAT_TEMPLATE, of_parts(CHAT_TEMPLATE), of_parts(TOOL_CHAT_TEMPLATE))


def render(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], prompt: bool, options: Mapping[str, Any]
) -> str:
    """Returns the text of a conversation by the tokenizer's chat template.

    Args:
        prompt: whether to add what the template writes before a reply.
        options: arguments of the template; `chat_template` replaces the tokenizer's.

    Raises:
        TemplateError, TypeError, AttributeError: the template raises.
        TimeoutError, MemoryError: it takes too much of either.
    """
    template = options.get("chat_template") or tokenizer.get_chat_template(tools=options.get("tools"))
    options = {**tokenizer.special_tokens_map, **options, "chat_template": template, "add_generation_prompt": prompt}
    if template in _OURS:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, **options))
    answer = PROCESS.call(
        "apply_chat_template", RENDERING_SECONDS, conversation=list(messages), tokenize=False, **options
    )
    if "kind" in answer:
        kinds: dict[str, type[Exception]] = {"TypeError": TypeError, "AttributeError": AttributeError}
        raise kinds.get(answer["kind"], TemplateError)(answer["message"])
    return str(answer["value"])


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
        TimeoutError, MemoryError: as in `render`.
    """
    template, known = tokenizer.response_template, [dict[Any, Any](tool) for tool in tools]
    if template == RESPONSE_TEMPLATE:
        return dict(tokenizer.parse_response(text, prefix=prefix, tools=list(known)))
    arguments = {"response": text, "schema": template, "prefix": prefix, "tools": known}
    answer = PROCESS.call("parse_response", PARSING_SECONDS, **arguments)
    if not isinstance(answer.get("value"), dict):
        raise ValueError(answer.get("message"))
    return dict(answer["value"])
