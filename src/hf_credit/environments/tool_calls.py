"""Reads tool calls from replies, in the forms of common chat templates, and writes each as one line of text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

_MOST_CHARACTERS = 16_384  # of a call
_MARKS = ("<tool_call>", "<function=")
_NAME = re.compile(r"[\w.-]{1,128}")
_FUNCTION = re.compile(r"([\w.-]{1,128})>(.*?)</function>", re.DOTALL)  # after its mark

Call = tuple[str, dict[str, Any]]


def read_calls(reply: str) -> list[Call] | None:
    """The tool calls of a reply, as names and arguments; empty if it has none, `None` if one cannot be read.

    The forms are `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Hermes, Qwen),
    `<function=NAME>{...}</function>` (Llama 3.2 and others), and a reply that is only such an object, with `arguments`
    or `parameters` (Llama 3.1), or a list of them (Mistral, whose mark is a special token). Thoughts before `</think>`
    are ignored. A call has at most 16,384 characters of JSON.
    """
    reply = _without_thoughts(reply)
    calls: list[Call | None] = []
    if "<tool_call>" in reply:
        for part in reply.split("<tool_call>")[1:]:
            text, close, _ = part.partition("</tool_call>")
            calls.append(_call_in(_parsed(text)) if close else None)
    elif "<function=" in reply:
        matches = [_FUNCTION.match(part) for part in reply.split("<function=")[1:]]
        calls = [_call_of(match[1], _parsed(match[2])) if match else None for match in matches]
    elif reply.strip()[:1] in ("{", "["):
        parsed = _parsed(reply)
        calls = [_call_in(value) for value in (parsed if isinstance(parsed, list) else [parsed])]
        if None in calls:
            return []  # text that happens to begin with a bracket
    return None if None in calls else [call for call in calls if call is not None]


def one_action(reply: str) -> str:
    """The plain action of a reply: its one call as a line of JSON, or its text if it has no call; empty if it has
    several calls, or one that cannot be read."""
    calls = read_calls(reply)
    if calls is None or len(calls) > 1:
        return ""
    return write_call(*calls[0]) if calls else _without_thoughts(reply).strip()


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as one line of JSON, the same for equal arguments."""
    return json.dumps({"name": name, "arguments": arguments}, sort_keys=True)


def marked(call: str) -> str:
    """A reply with a call of `write_call`, in the form of Hermes and Qwen."""
    return f"<tool_call>\n{call}\n</tool_call>"


def call_in_words(name: str, arguments: Any) -> str:
    """A call for people: `name(argument=value, ...)`, with values and unusual names as JSON."""
    if not isinstance(arguments, Mapping):
        return f"{_name(name)}({_json(arguments)})"
    return f"{_name(name)}({', '.join(f'{_name(str(key))}={_json(value)}' for key, value in arguments.items())})"


def has_mark(reply: str) -> bool:
    """Whether a reply opens a tool call, readable or not."""
    return any(mark in _without_thoughts(reply) for mark in _MARKS)


def _without_thoughts(reply: str) -> str:
    return reply.rpartition("</think>")[2]


def _name(text: str) -> str:
    return text if _NAME.fullmatch(text) else _json(text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _call_in(value: Any) -> Call | None:
    if not isinstance(value, dict):
        return None
    return _call_of(value.get("name"), value.get("arguments", value.get("parameters")))


def _call_of(name: Any, arguments: Any) -> Call | None:
    return (name, arguments) if isinstance(name, str) and name and isinstance(arguments, dict) else None


def _parsed(text: str) -> Any:
    """The value of a JSON text; `None` if it is not JSON or too long."""
    if len(text) > _MOST_CHARACTERS:
        return None
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
