"""A downloaded tokenizer is tried before this process loads it: what takes too much for a text is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_credit.loading import load_tokenizer
from hf_credit.tokenizer_process import PROCESS

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
UNLIMITED = {
    "type": "WordPiece",
    "unk_token": "?",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 10**9,
}

# Of tokenizers on the Hub, as their files have them.
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_CASES = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CASES[0]}*{_CASES[1]}+{_CASES[2]}|[^\r\n\p{{L}}\p{{N}}]?{_CASES[0]}+{_CASES[1]}*"
    rf"{_CASES[2]}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DIGITS = r"\p{N}{1,3}(?=(\p{N}{3})*\b)"  # takes quadratic time for a very long number


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def times_ten(kind: str, count: int) -> dict[str, Any]:
    return {"type": "Sequence", kind: [replace("a", "a" * 10)] * count}


@pytest.fixture
def folder(tokenizer: Any, tmp_path: Path) -> Callable[..., Path]:
    """Writes a tokenizer, with parts of its file in place of its own."""

    def write(file: str = "tokenizer.json", **parts: Any) -> Path:
        tokenizer.save_pretrained(tmp_path)
        whole = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
        (tmp_path / file).write_text(json.dumps({**whole, **parts}), encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize(
    "parts",
    [
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split(pattern), BYTES]}, "decoder": BYTES}
        for pattern in (GPT_2, LLAMA_3, O200K, DIGITS)
    ]
    + [
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")]}},
        {"normalizer": {"type": "NFKC"}, "pre_tokenizer": {"type": "BertPreTokenizer"}},
        {"pre_tokenizer": {"type": "Digits", "individual_digits": True}, "decoder": {"type": "ByteFallback"}},
    ],
)
def test_the_tokenizers_of_known_families_are_loaded(folder: Callable[..., Path], parts: dict[str, Any]) -> None:
    assert load_tokenizer(folder(**parts)).pad_token == "<|pad|>"


@pytest.mark.parametrize(
    ("parts", "took"),
    [
        ({"pre_tokenizer": split(r"(?:a|a|aa)+$")}, "too many steps"),
        ({"pre_tokenizer": split(r"NEVER(?:q|q|qq)+(?:x|[0-9])")}, r"too many steps for .* begin with 'NEVERqqq"),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": r"(\s|\n)*\n;"}, "content": ""}}, "too many steps"),
        ({"normalizer": replace("日", "x" * 10_000)}, "characters for [0-9]+ characters"),
        ({"normalizer": times_ten("normalizers", 4)}, "characters for [0-9]+ characters"),
        ({"normalizer": times_ten("normalizers", 20)}, "more than 10 seconds or 1 GiB"),
        ({"decoder": times_ten("decoders", 4)}, "characters for [0-9]+ characters"),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 12}}, "characters for [0-9]+ characters"),
        ({"model": {**UNLIMITED, "vocab": {"?": 0}}}, "seconds and .* for 4096 characters"),
    ],
)
def test_a_tokenizer_that_takes_too_much_for_some_text_is_refused(
    folder: Callable[..., Path], parts: dict[str, Any], took: str
) -> None:
    with pytest.raises(ValueError, match=f"a tokenizer must take little time and memory .* which took .*({took})"):
        load_tokenizer(folder(**parts))


def test_a_token_that_would_become_gigabytes_when_the_file_is_loaded_is_refused(folder: Callable[..., Path]) -> None:
    token = {"id": 0, "content": "a" * 99, "special": False, "normalized": True}
    token |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    with pytest.raises(ValueError, match="a tokenizer must take little time and memory"):
        load_tokenizer(folder(added_tokens=[token], normalizer=times_ten("normalizers", 20)))


def test_the_file_that_transformers_chooses_by_its_version_is_tried(folder: Callable[..., Path]) -> None:
    path = folder("tokenizer.4.0.0.json", pre_tokenizer=split(r"(?:a|a|aa)+$"))
    config = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["fast_tokenizer_files"] = ["tokenizer.json", "tokenizer.4.0.0.json"]
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match="too many steps"):
        load_tokenizer(path)


def test_whoever_trusts_the_folder_has_its_tokenizer_loaded(folder: Callable[..., Path]) -> None:
    assert load_tokenizer(folder(pre_tokenizer=split(r"(?:a|a|aa)+$")), trust_remote_code=True).pad_token == "<|pad|>"


def test_the_tokenizer_of_a_micro_policy_needs_no_trial(micro_policy: Path) -> None:
    before = PROCESS.started
    PROCESS.reset()
    assert load_tokenizer(micro_policy).pad_token == "<|pad|>"
    assert PROCESS._server is None
    assert PROCESS.started == before


def test_a_tokenizer_that_cannot_be_tried_is_refused(folder: Callable[..., Path]) -> None:
    with pytest.raises(
        ValueError, match=r"must take little time and memory for any text, got .*, which cannot be tried \(data"
    ):
        load_tokenizer(folder(normalizer={"type": "Unheard"}))
