"""Checkpoints of strangers: which of their files are taken, and what their tensors are, before they are loaded."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from hf_credit.hub.safety import check_safetensors
from hf_credit.safe_io import parse_json

MOST_FILE_BYTES = 64 * 2**20
"""Of any file but weights: a tokenizer, say."""

WANTED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "README.md", "*/*.safetensors", "*/*.json")
"""What is downloaded of a checkpoint: none of these is code, and none is unpacked by running it."""

_READABLE = frozenset({".safetensors", ".json", ".txt", ".model", ".jinja", ".md"})
_CHUNK = 2**20


def check_folder(folder: Path) -> None:
    """Refuses a checkpoint's folder with anything but safetensors and text within limits.

    Raises:
        ValueError: a file is of another kind, a link, too large or asks for code of others to be run.
    """
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())
    if not any(path.suffix == ".safetensors" for path in paths):
        raise ValueError("a checkpoint must hold its weights as safetensors, got none; save it with save_pretrained.")
    for path in paths:
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or path.suffix not in _READABLE:
            raise ValueError(f"a checkpoint must hold safetensors, JSON and text, got {name[:100]!r}; remove it.")
        if path.suffix != ".safetensors" and path.stat().st_size > MOST_FILE_BYTES:
            raise ValueError(f"a file beside weights must have at most {MOST_FILE_BYTES} bytes, got more in {name!r}.")
        if path.name in ("config.json", "tokenizer_config.json"):
            value = parse_json(path.read_text(encoding="utf-8"))
            if isinstance(value, dict) and "auto_map" in value:
                raise ValueError(f"a checkpoint must run no code of its own, got auto_map in {name!r}; remove it.")


def parameters(folder: Path) -> int:
    """How many numbers the tensors of a folder hold.

    Raises:
        ValueError: as in `hf_credit.hub.safety.check_safetensors`.
    """
    return sum(math.prod(one["shape"]) for path in _files(folder) for one in _header(path)[1].values())


def tensor_digest(folder: Path) -> str:
    """The SHA-256 of all tensors by name, type, shape and bytes, whatever files they lie in and whatever these are
    called: two checkpoints share it if and only if they are the same weights.

    Raises:
        ValueError: as in `parameters`.
    """
    found = []
    for path in _files(folder):
        part = path.parent.relative_to(folder).as_posix()
        begin, header = _header(path)
        for name, one in header.items():
            start, end = one["data_offsets"]
            found.append([part, name, one["dtype"], one["shape"], _hash(path, begin + start, end - start)])
    return hashlib.sha256(json.dumps(sorted(found)).encode("utf-8")).hexdigest()


def template_digest(text: str) -> str:
    """The SHA-256 of a chat template, which sees every prompt and so could play."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def _header(path: Path) -> tuple[int, dict[str, Any]]:
    """Where the tensors of a file begin, and what it says of them, checked against its size."""
    check_safetensors(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return 8 + length, header


def _hash(path: Path, start: int, length: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        while length > 0 and (chunk := file.read(min(_CHUNK, length))):
            digest.update(chunk)
            length -= len(chunk)
    return digest.hexdigest()
