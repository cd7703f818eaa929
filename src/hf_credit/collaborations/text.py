"""Texts between roles: trimmed, with one kind of line break, without leaked markers of a chat template."""

from __future__ import annotations

import re

# Known markers of turns in chat templates. Not every `<|x|>`, which may be an expectation value.
_MARKER = re.compile(
    r"<\|(?:im_start|im_end|im_sep|endoftext|begin_of_text|end_of_text|start_header_id|end_header_id|eot_id|eom_id"
    r"|system|user|assistant|end|start|message|return)\|>"
    r"|</s>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>"
)
# The name of a role where a template writes it: after an opening marker, or at the start of a line, either alone or
# before a colon. "System:" may start a system of equations, so it stays.
_OPENED_ROLE = re.compile(
    r"(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>)[ \t]*(?:system|user|assistant|model)\b"
)
_ROLE_LINE = re.compile(r"^[ \t]*(?:system|user|assistant)[ \t]*(?:\n|\Z)", re.MULTILINE)
_ROLE_COLON = re.compile(r"^(?:[ \t]*(?:#+[ \t]*)?(?:user|assistant|human)[ \t]*:)+", re.MULTILINE | re.IGNORECASE)
_LEAKS = (_OPENED_ROLE, _MARKER, _ROLE_LINE, _ROLE_COLON)

MOST_PASSES = 64
"""Maximum number of passes. A removal may create a new marker, as in `<|im_<|im_end|>end|>`."""


def normalise(text: str) -> str:
    """Returns `text` without white space at its ends, with `\\n` for every line break (paper C3, Appendix B)."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def sanitise_mathematics(text: str) -> str:
    """Returns `text` without leaked markers of a chat template and role headers (paper C3, Appendix B).

    The paper removes markers and keeps mathematical syntax, but does not list the markers; the list is ours. Only
    markers of known templates and role names at the start of a line are removed, so backslashes, braces, bars and
    angle brackets stay. Removal repeats until nothing changes, so the function is idempotent. If leaks are nested
    deeper than `MOST_PASSES`, the result is empty.
    """
    for _ in range(MOST_PASSES):
        before, text = text, normalise(text)
        for leak in _LEAKS:
            text = leak.sub("", text)
        if text == before:
            return text
    return ""


def without_final_box(text: str) -> str:
    r"""Returns `text` without a final `\boxed{...}` with balanced braces and the dollar signs around it."""
    start = text.rfind("\\boxed{")
    depth = 0
    for index in range(start, len(text) if start >= 0 else start):
        depth += (text[index] == "{") - (text[index] == "}")
        if depth == 0 and text[index] == "}":
            return text if text[index + 1 :].strip(" \n.$") else text[:start].rstrip(" \n$")
    return text
