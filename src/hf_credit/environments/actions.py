"""Actions in replies: in tags, or as tool calls, each as one line of text."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hf_credit.replies import MOST_DEPTH, Call, read_reply, spans, spoken
from hf_credit.safe_io import parse_json

OPEN, CLOSE = "<action>", "</action>"


def tag(action: str) -> str:
    """Wraps an action in the tag that replies use."""
    return f"{OPEN}{action}{CLOSE}"


@functools.lru_cache(maxsize=1024)  # each reply is read twice: by the environment and by the oracle
def last_action(reply: str) -> str | None:
    """The content of the last `<action>...</action>` of a reply outside its thoughts, or `None` if there is none.

    The text is lower-cased and white space is collapsed, so `<ACTION> Place  1 2 </Action>` reads as `place 1 2`.
    """
    tagged = spelled_action(reply)
    return None if tagged is None else " ".join(_folded(tagged).split())


def spelled_action(reply: str) -> str | None:
    """Like `last_action`, with case and inner white space kept."""
    if OPEN[0] not in reply:
        return None
    reply = spoken(reply)
    folded = _folded(reply)
    start = folded.rfind(OPEN, 0, max(folded.rfind(CLOSE), 0))
    return reply[start + len(OPEN) : folded.find(CLOSE, start)].strip() if start >= 0 else None


def acting(reply: str) -> tuple[int, int]:
    """Where the first action or tool call of a reply starts and the last ends, with marks; `(0, 0)` without one."""
    folded, found = _folded(reply), list[tuple[int, int]]()
    for kind, start, end in spans(reply):
        if kind == "content" and (start := folded.find(OPEN, start, end)) >= 0:
            close = folded.rfind(CLOSE, start, end)
            found.append((start, end if close < 0 else close + len(CLOSE)))
        elif kind == "call":
            found.append((start, end))
    return (found[0][0], found[-1][1]) if found else (0, 0)


@functools.lru_cache(maxsize=1024)
def plain_action(text: str) -> str:
    """A plain action from either form: a reply with an action tag, or the bare action itself."""
    tagged = last_action(text)
    return tagged if tagged is not None else " ".join(_folded(text).split())


def numbers(action: str, verb: str, count: int) -> tuple[int, ...] | None:
    """The `count` numbers after `verb` in a plain action, or `None` if the action has another form.

    A number is at most four ASCII digits without leading zeros, so that an action has one spelling only.
    """
    read = re.fullmatch(re.escape(verb) + " (0|[1-9][0-9]{0,3})" * count, action)
    return None if read is None else tuple(map(int, read.groups()))


def _folded(text: str) -> str:
    """ASCII letters in lower case: `lower()` can change the length of other text and so shift positions."""
    return text.lower() if text.isascii() else text.translate(_FOLD)


_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


_NAME = re.compile(r"[\w.-]{1,128}")


class Action(str):
    """A plain action with the calls of its reply, so that a turn reads a reply once."""

    made: tuple[Call, ...]


def one_action(reply: str, tools: Sequence[Mapping[str, Any]] = ()) -> Action:
    """The plain action of a reply: its one call as a line of JSON, or its text without thoughts if it has no call,
    several, or one that cannot be read.

    Args:
        reply: of the policy, or such an action.
        tools: as for `hf_credit.replies.read_reply`.
    """
    if isinstance(reply, Action):
        return reply
    made = _stored(reply)
    if not made:
        said = read_reply(reply, tools)
        made, readable = said.made, len(said.made) == len(said.calls) == 1
        reply = write_call(made[0].name, made[0].arguments) if readable else said.spoken.strip()
    action = Action(reply)
    action.made = made
    return action


def calls_of(action: str) -> tuple[Call, ...]:
    """The calls of a plain action, with those that cannot be read; an action from a file has to be read anew."""
    return one_action(action).made


def _stored(action: str) -> tuple[Call, ...]:
    """The call that `write_call` wrote, of any length: JSON escapes make it longer than calls in replies may be."""
    if action.startswith('{"arguments": {'):
        with suppress(ValueError, TypeError, LookupError):
            value = parse_json(action, most_depth=MOST_DEPTH, finite=True)
            if isinstance(value["name"], str) and value["name"] and write_call(**value) == action:
                return (Call(**value),)
    return ()


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as one line of JSON, the same for equal arguments."""
    return json.dumps({"name": name, "arguments": arguments}, sort_keys=True, ensure_ascii=False)


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
