"""Tool calls as actions: each as one line of text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hf_credit.replies import read_reply

_NAME = re.compile(r"[\w.-]{1,128}")


def one_action(reply: str, tools: Sequence[Mapping[str, Any]] = ()) -> str:
    """The plain action of a reply: its one call as a line of JSON, or its text without thoughts if it has no call,
    several, or one that cannot be read.

    Args:
        reply: of the policy.
        tools: as for `hf_credit.replies.read_reply`.
    """
    said = read_reply(reply, tools)
    if len(said.made) == len(said.calls) == 1:
        return write_call(said.calls[0].name, said.calls[0].arguments)
    return said.spoken.strip()


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


def _name(text: str) -> str:
    return text if _NAME.fullmatch(text) else _json(text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
