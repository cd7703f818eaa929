"""Checks of untrusted checkpoints before they are loaded: their files, and the size and digest of their tensors."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import mmap
from pathlib import Path
from typing import Any

from hf_credit.hub.safety import check_safetensors
from hf_credit.safe_io import parse_json

MOST_FILE_BYTES = 64 * 2**20
"""The maximum size of a file that holds no weights, such as a tokenizer."""

MOST_TENSORS = 100_000
"""Of a checkpoint; one may be empty, so the limit of parameters bounds neither their number nor memory."""

WANTED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "README.md", "*/*.safetensors", "*/*.json")
"""The files that are downloaded; none holds code, and reading one runs none."""

_READABLE = frozenset({".safetensors", ".json", ".txt", ".model", ".jinja", ".md"})


def check_folder(folder: Path) -> None:
    """Refuses a checkpoint's folder with other files than safetensors and text within limits.

    Raises:
        ValueError: a file has another type, is a link or too large, or names code to run (`auto_map`).
    """
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())
    if not any(path.suffix == ".safetensors" for path in paths):
        raise ValueError("a checkpoint must hold its weights as safetensors, got none; save it with save_pretrained.")
    for path in paths:
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or path.suffix not in _READABLE:
            raise ValueError(f"a checkpoint must hold safetensors, JSON and text, got {name[:100]!r}; remove it.")
        if path.suffix != ".safetensors" and path.stat().st_size > MOST_FILE_BYTES:
            raise ValueError(
                f"a file next to weights must have at most {MOST_FILE_BYTES} bytes, got more in {name!r}."
            )
        if path.name in ("config.json", "tokenizer_config.json"):
            value = parse_json(path.read_text(encoding="utf-8"))
            if isinstance(value, dict) and "auto_map" in value:
                raise ValueError(f"a checkpoint must run no code of its own, got auto_map in {name!r}; remove it.")


def parameters(folder: Path) -> int:
    """Returns the number of elements of all tensors in a folder.

    Raises:
        ValueError: as in `hf_credit.hub.safety.check_safetensors`, or there are more than `MOST_TENSORS`.
    """
    sizes = (math.prod(tensor["shape"]) for path in _files(folder) for tensor in _header(path)[1].values())
    if len(first := list(itertools.islice(sizes, MOST_TENSORS + 1))) > MOST_TENSORS:
        raise ValueError(f"a checkpoint must have at most {MOST_TENSORS} tensors, got more; join them.")
    return sum(first)


def tensor_digest(folder: Path) -> str:
    """Returns the SHA-256 of all tensors by folder, name, type, shape and bytes. It does not depend on the names of
    files, nor on how tensors are split among them: equal weights have equal digests.

    Raises:
        ValueError: as in `parameters`.
    """
    tensors = []
    for path in _files(folder):
        part = path.parent.relative_to(folder).as_posix()
        begin, header = _header(path)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for name, tensor in header.items():
                start, end = (begin + offset for offset in tensor["data_offsets"])
                with memoryview(content) as view:
                    digest = hashlib.sha256(view[start:end]).hexdigest()
                tensors.append([part, name, tensor["dtype"], tensor["shape"], digest])
    return hashlib.sha256(json.dumps(sorted(tensors)).encode("utf-8")).hexdigest()


def template_digest(text: str) -> str:
    """Returns the SHA-256 of a chat template. A template reads every prompt, so it could play for the policy."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def _header(path: Path) -> tuple[int, dict[str, Any]]:
    """Returns the offset of a file's tensors and its header, checked against its size."""
    check_safetensors(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return 8 + length, header
