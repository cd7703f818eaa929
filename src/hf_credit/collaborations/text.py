"""The text that passes between roles: trimmed, with one kind of line break, without leaks of a chat template."""

from __future__ import annotations

import re

# What chat templates wrap turns in. A list of known ones: `<|x|>` may as well be an expectation value.
_MARKER = re.compile(
    r"<\|(?:im_start|im_end|im_sep|endoftext|begin_of_text|end_of_text|start_header_id|end_header_id|eot_id|eom_id"
    r"|system|user|assistant|end|start|message|return)\|>"
    r"|</s>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>"
)
# The name of a role where a template writes one: behind an opening marker, or at the start of a line, where it is
# either all of the line or has a colon behind it. "System:" may open a system of equations, so it stays.
_OPENED_ROLE = re.compile(
    r"(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>)[ \t]*(?:system|user|assistant|model)\b"
)
_ROLE_LINE = re.compile(r"^[ \t]*(?:system|user|assistant)[ \t]*(?:\n|\Z)", re.MULTILINE)
_ROLE_COLON = re.compile(r"^(?:[ \t]*(?:#+[ \t]*)?(?:user|assistant|human)[ \t]*:)+", re.MULTILINE | re.IGNORECASE)
_LEAKS = (_OPENED_ROLE, _MARKER, _ROLE_LINE, _ROLE_COLON)

MOST_PASSES = 64
"""Of removing leaks. Each brings to light what stood around those of the one before, as in `<|im_<|im_end|>end|>`."""


def normalise(text: str) -> str:
    """`text` without white space at its ends, every line break `\\n` (paper C3, Appendix B)."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def sanitise_mathematics(text: str) -> str:
    """`text` without leaked markers of a chat template and without role headers (paper C3, Appendix B).

    The paper says that markers go and mathematical syntax stays, not which markers; the list is ours. Nothing but a
    marker of a known template or a role's name at the start of a line is touched, so backslashes, braces, bars and
    angle brackets stay. What a removal brings together is looked at again: `sanitise_mathematics` of its own result
    changes nothing. A text in which leaks are nested deeper than `MOST_PASSES` is made of nothing else, and is empty.
    """
    for _ in range(MOST_PASSES):
        before, text = text, normalise(text)
        for leak in _LEAKS:
            text = leak.sub("", text)
        if text == before:
            return text
    return ""


def without_final_box(text: str) -> str:
    r"""`text` without the `\boxed{...}` that it ends with, if it does, and without what frames that.

    Anything may stand in the braces, as long as they are balanced.
    """
    start = text.rfind("\\boxed{")
    depth = 0
    for place in range(start, len(text) if start >= 0 else start):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0 and text[place] == "}":
            return text if text[place + 1 :].strip(" \n.$") else text[:start].rstrip(" \n$")
    return text
