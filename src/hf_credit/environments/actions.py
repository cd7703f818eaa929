"""Reading an action out of a reply."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"0|[1-9][0-9]{0,3}")

OPEN, CLOSE = "<action>", "</action>"


def tag(action: str) -> str:
    """An action as a reply carries it."""
    return f"{OPEN}{action}{CLOSE}"


def last_action(reply: str) -> str | None:
    """The content of the last `<action>...</action>` of a reply, or `None` where there is none.

    Case does not count and white space is collapsed, so `<ACTION> Place  1 2 </Action>` reads as `place 1 2`.
    """
    if OPEN[0] not in reply:
        return None
    # ASCII letters only are folded: `lower()` can change the length of other text and so shift the positions.
    folded = reply.translate(_FOLD)
    start = folded.rfind(OPEN, 0, max(folded.rfind(CLOSE), 0))
    return " ".join(folded[start + len(OPEN) : folded.find(CLOSE, start)].split()) if start >= 0 else None


def plain_action(text: str) -> str:
    """A plain action from either form: a reply with an action tag, or the bare action itself."""
    tagged = last_action(text)
    return tagged if tagged is not None else " ".join(text.translate(_FOLD).split())


def numbers(action: str, verb: str, count: int) -> tuple[int, ...] | None:
    """The `count` numbers behind `verb` in a plain action, or `None` if it does not read exactly so.

    A number is at most four ASCII digits without leading zeros, so that an action has one spelling only.
    """
    words = action.split(" ")
    if len(words) != count + 1 or words[0] != verb:
        return None
    if not all(_NUMBER.fullmatch(word) for word in words[1:]):
        return None
    return tuple(int(word) for word in words[1:])


_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
