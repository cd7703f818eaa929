"""Reads actions from replies."""

from __future__ import annotations

import functools
import re

from hf_credit.replies import spoken

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
