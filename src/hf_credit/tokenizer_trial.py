"""Tries a downloaded tokenizer in the process of `hf_credit.template_process` before this process loads it.

The library of tokenizers runs their normalizers, patterns and decoders in this process, without limits: a pattern can
take exponential time, and a few replacements can make gigabytes of one letter, even of a token that a file adds.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from pathlib import Path
from typing import Any

from hf_credit.template_process import PROCESS

UNIT = r"</?[a-z]+>| ?[A-Za-z]+[0-9]*(?:=[0-9.]|\?[0-9]+)?| ?[0-9]+(?:\.[0-9]+)?| ?[^\sA-Za-z]|\s"
"""The pattern of micro policies: a tag, a word with its number (C1) and its value (b3=2) or candidates (b3?14), a
number, or one other character, each with the space before it."""

_SPLIT = {"type": "Split", "pattern": {"Regex": UNIT}, "behavior": "Isolated", "invert": False}
_OURS = (None, _SPLIT, {"type": "Fuse"})
_SECONDS = 60.0  # of wall-clock time; the process limits the CPU time to ten
_ESCAPED = {"n": "\n", "r": "\r", "s": " ", "t": "\t"}


def require_bounded(name: str | Path, revision: str | None = None) -> None:
    """Refuses a tokenizer that takes much time or memory for a text that is made to be hard for it.

    Args:
        name: a folder, or an id on the Hub.

    Raises:
        ValueError: it is such a tokenizer, or its file is not JSON.
    """
    from transformers.tokenization_utils_base import get_fast_tokenizer_file

    versions = _read(name, "tokenizer_config.json", revision).get("fast_tokenizer_files")
    whole = _read(name, get_fast_tokenizer_file(versions) if versions else "tokenizer.json", revision)
    parts = {one: whole.get(one) for one in ("normalizer", "pre_tokenizer", "decoder")}
    model: dict[str, Any] = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
    if (own := whole.get("model") or {}).get("type") == "WordPiece":  # slow for long words, if it takes them
        model = {**own, "vocab": {str(own.get("unk_token")): 0, "a": 1, f"{own.get('continuing_subword_prefix')}a": 2}}
    if all(part in _OURS for part in parts.values()) and model.get("max_input_chars_per_word", 100) == 100:
        return
    small = {"version": "1.0", **parts, "added_tokens": whole.get("added_tokens") or [], "model": model}
    said = re.sub(r"[A-Za-z0-9+/=]{500,}", "", json.dumps(parts, ensure_ascii=False))  # no table of characters
    if why := _tried(json.dumps(small), re.sub(r"\\+([nrst])", lambda escaped: _ESCAPED[escaped[1]], said)):
        raise ValueError(
            f"a tokenizer must take little time and memory for any text, got that of {str(name)!r}, which took {why}; "
            "use another one, or pass trust_remote_code if you trust whoever made it."
        )


def _read(name: str | Path, file: str, revision: str | None) -> dict[str, Any]:
    """Returns what a file says; nothing without one, or without such a model, which transformers says."""
    from transformers.utils import cached_file

    with contextlib.suppress(OSError):
        found = json.loads(Path(str(cached_file(str(name), file, revision=revision))).read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


@functools.lru_cache(maxsize=16)
def _tried(tokenizer: str, said: str) -> str:
    try:
        return str(PROCESS.call("try_tokenizer", _SECONDS, tokenizer=tokenizer, said=said).get("value", ""))
    except (TimeoutError, MemoryError):
        return "more than 10 seconds or 1 GiB"
