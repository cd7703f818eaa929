"""Helpers of reports: tables, blocks and headings in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hf_credit.redaction import written_out
from hf_credit.words import cut

_MARKUP = re.compile(r"[\\`*<>&|]|(?<=!)(?=\[)|(?<=\])(?=[(\[])|_(?![^\W_])|(?<![^\W_])_")


class Markup(str):
    """A text that is Markdown, which `table` shows as such."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table. Its cells are shown as they are (`escaped`), except `Markup`."""
    lines = [header, [Markup("---")] * len(header), *rows]
    shown = ([one if isinstance(one, Markup) else escaped(str(one)) for one in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in shown)


def escaped(text: str) -> Markup:
    """Returns a text, of a file for example, in one line of Markdown that shows it and in which nothing is active."""
    return Markup(_MARKUP.sub(r"\\\g<0>", readable(text).replace("\n", " ")))


def code(name: str) -> Markup:
    """Returns a name as code, in one line."""
    return Markup(f"`{readable(name).replace('`', chr(39)).replace('|', '¦')}`".replace("\n", " "))


def readable(text: str, most: int = 2_000) -> str:
    """Replaces control and invalid characters by their codes, and cuts out the middle of a long text."""
    return written_out(cut(text, most))


def fenced(text: str, language: str = "text", most: int = 2_000) -> str:
    """Returns a code block with the `readable` text, which cannot end the block."""
    text = readable(text, most).removesuffix("\n")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
