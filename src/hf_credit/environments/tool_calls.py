"""Tool calls in replies, in the forms that chat templates teach, as one plain text each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

_MOST_CHARACTERS = 16_384  # of a call
_MARKS = ("<tool_call>", "<function=")
_NAME = re.compile(r"[\w.-]{1,128}")
_FUNCTION = re.compile(r"([\w.-]{1,128})>(.*?)</function>", re.DOTALL)  # behind its mark

Call = tuple[str, dict[str, Any]]


def read_calls(reply: str) -> list[Call] | None:
    """The tool calls of a reply, as names and arguments; none where it has none, `None` where one cannot be read.

    Known are `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Hermes, Qwen), `<function=NAME>{...}
    </function>` (Llama 3.2 and others), and a reply that is nothing but such an object, with `arguments` or
    `parameters` (Llama 3.1), or a list of them (Mistral, whose mark is a special token). What is thought before
    `</think>` is no part of a reply. JSON is read as data, and no more than 16,384 characters of it.
    """
    said = reply.rpartition("</think>")[2]
    if "<tool_call>" in said:
        parts = said.split("<tool_call>")[1:]
        texts = [text for text, close, _ in (part.partition("</tool_call>") for part in parts) if close]
        calls = [_call(text) for text in texts] if len(texts) == len(parts) else [None]
    elif "<function=" in said:
        found = [_FUNCTION.match(part) for part in said.split("<function=")[1:]]
        calls = [None if one is None else _call_of(one[1], _parsed(one[2])) for one in found]
    elif said.strip()[:1] in ("{", "["):
        parsed = _parsed(said)
        listed = parsed if isinstance(parsed, list) else [parsed]
        calls = [_call_in(one) for one in listed]
        if None in calls:
            return []  # text that happens to begin with a bracket
    else:
        return []
    return None if None in calls else [call for call in calls if call is not None]


def one_action(reply: str) -> str:
    """The plain action of a reply that takes one call at most: the call as one line of JSON, or what it says where it
    has none; empty where it has several, or one that cannot be read."""
    calls = read_calls(reply)
    if calls is None or len(calls) > 1:
        return ""
    return write_call(*calls[0]) if calls else reply.rpartition("</think>")[2].strip()


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as one line of JSON, the same for equal arguments."""
    return json.dumps({"name": name, "arguments": arguments}, sort_keys=True)


def marked(call: str) -> str:
    """A reply that makes the call that `write_call` wrote, in the form of Hermes and Qwen."""
    return f"<tool_call>\n{call}\n</tool_call>"


def call_in_words(name: str, arguments: Any) -> str:
    """A call as people read it: `name(argument=value, ...)`, values and odd names as JSON."""
    if not isinstance(arguments, Mapping):
        return f"{_name(name)}({_json(arguments)})"
    return f"{_name(name)}({', '.join(f'{_name(str(key))}={_json(value)}' for key, value in arguments.items())})"


def has_mark(reply: str) -> bool:
    """Whether a reply opens a tool call, be it readable or not."""
    return any(mark in reply.rpartition("</think>")[2] for mark in _MARKS)


def _name(text: str) -> str:
    return text if _NAME.fullmatch(text) else _json(text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _call(text: str) -> Call | None:
    return _call_in(_parsed(text))


def _call_in(value: Any) -> Call | None:
    if not isinstance(value, dict):
        return None
    return _call_of(value.get("name"), value.get("arguments", value.get("parameters")))


def _call_of(name: Any, arguments: Any) -> Call | None:
    return (name, arguments) if isinstance(name, str) and name and isinstance(arguments, dict) else None


def _parsed(text: str) -> Any:
    """What a JSON text says; `None` of any other."""
    if len(text) > _MOST_CHARACTERS:
        return None
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
