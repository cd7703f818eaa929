"""Tries a downloaded tokenizer in the process of `hf_credit.template_process` before this process loads it.

The library of tokenizers runs their normalizers, patterns and decoders in this process, without limits: a pattern can
take exponential time, and a few replacements can make gigabytes of one letter, even of a token that a file adds.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_credit.template_process import PROCESS

UNIT = r"</?[a-z]+>| ?[A-Za-z]+[0-9]*(?:=[0-9.]|\?[0-9]+)?| ?[0-9]+(?:\.[0-9]+)?| ?[^\sA-Za-z]|\s"
"""The pattern of micro policies: a tag, a word with its number (C1) and its value (b3=2) or candidates (b3?14), a
number, or one other character, each with the space before it."""

TRIAL_SECONDS = 60.0
"""Wall-clock limit of a trial, which takes one or two."""

_PARTS = ("normalizer", "pre_tokenizer", "decoder")
_SPLIT = {"type": "Split", "pattern": {"Regex": UNIT}, "behavior": "Isolated", "invert": False}
_OURS = (None, _SPLIT, {"type": "Fuse"})
_CONFIG, _FILE = "tokenizer_config.json", "tokenizer.json"


def require_bounded(name: str | Path, revision: str | None = None) -> None:
    """Refuses a tokenizer that takes much time or memory for a text that is made to be hard for it.

    Args:
        name: a folder, or an id on the Hub.

    Raises:
        ValueError: it is such a tokenizer, or its file is not JSON.
    """
    if (path := _file_of(name, revision)) is None:
        return
    whole = json.loads(path.read_bytes())
    if isinstance(whole, Mapping) and (why := _tried(json.dumps(_without_vocabulary(whole)))):
        raise ValueError(
            f"a tokenizer must take little time and memory for any text, got that of {str(name)!r}, which took {why}; "
            "use another one, or pass trust_remote_code if you trust whoever made it."
        )


def _file_of(name: str | Path, revision: str | None) -> Path | None:
    """The file that transformers loads."""
    from transformers.tokenization_utils_base import get_fast_tokenizer_file
    from transformers.utils import cached_file

    def found(file: str) -> Path | None:
        try:
            path = cached_file(str(name), file, revision=revision)
        except OSError:  # none, or no such model, which transformers says
            return None
        return None if path is None else Path(path)

    config = found(_CONFIG)
    settings = {} if config is None else json.loads(config.read_bytes())
    versions = settings.get("fast_tokenizer_files") if isinstance(settings, Mapping) else None
    return found(get_fast_tokenizer_file(versions) if versions else _FILE)


def _without_vocabulary(whole: Mapping[str, Any]) -> dict[str, Any]:
    """A small tokenizer with the same parts and added tokens."""
    model = whole.get("model")
    known: dict[str, Any] = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
    if isinstance(model, Mapping) and model.get("type") == "WordPiece":  # slow for long words, if it takes them
        pieces = (str(model.get("unk_token")), "a", f"{model.get('continuing_subword_prefix')}a")
        known = {**model, "vocab": {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}}
    kept = {one: whole.get(one) for one in _PARTS}
    return {"version": "1.0", **kept, "added_tokens": whole.get("added_tokens") or [], "model": known}


@functools.lru_cache(maxsize=16)
def _tried(tokenizer: str) -> str:
    """Returns what a tokenizer took too much of; empty if nothing."""
    made = json.loads(tokenizer)
    if all(made[one] in _OURS for one in _PARTS) and made["model"].get("max_input_chars_per_word", 100) == 100:
        return ""
    try:
        return str(PROCESS.call("try_tokenizer", TRIAL_SECONDS, tokenizer=tokenizer).get("value", ""))
    except (TimeoutError, MemoryError):
        return "more than 10 seconds or 1 GiB"
