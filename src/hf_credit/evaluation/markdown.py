"""What reports are written with: tables, blocks and headings of Markdown, and values that strict JSON can hold."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hf_credit.evaluation.credited import cut
from hf_credit.evaluation.episode_page import written_out


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, a row a line."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def readable(text: str, most: int = 2_000) -> str:
    """A text with control characters and broken ones written out, the middle left out where it is too long."""
    return written_out(cut(text, most))


def heading(name: str) -> str:
    """A name of somebody's, in a line."""
    return readable(name, most=200).replace("\n", " ")


def fenced(text: str, language: str = "text", most: int = 2_000) -> str:
    """A `readable` code block that no text can end."""
    text = readable(text, most).removesuffix("\n")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def plain(value: Any) -> Any:
    """Values that strict JSON can hold, dataclasses by their fields; what is not finite is `None`."""
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
