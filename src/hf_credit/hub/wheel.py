"""The wheel of the installed library, which a Space brings along: no package index has one from us."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.resources
import io
import zipfile
from collections.abc import Iterator
from importlib.resources.abc import Traversable

from hf_credit._version import __version__

WHEEL = f"wheels/hf_credit-{__version__}-py3-none-any.whl"
"""Its place in a Space."""

_INFO = f"hf_credit-{__version__}.dist-info"
_FORMAT = "Wheel-Version: 1.0\nGenerator: hf-credit\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def own_wheel() -> dict[str, bytes]:
    """Returns the wheel of this library as it runs, whichever way it was installed, at its place in a Space."""
    installed = importlib.metadata.distribution("hf-credit")
    files = {f"{_INFO}/WHEEL": _FORMAT.encode()}
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE", "top_level.txt"):
        files[f"{_INFO}/{name}"] = (installed.read_text(name) or "").encode()
    for package in files[f"{_INFO}/top_level.txt"].decode().split():
        files |= dict(_files(importlib.resources.files(package), package))
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in sorted(files.items())]
    record = f"{_INFO}/RECORD"
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)  # without a time
    return {WHEEL: content.getvalue()}


def _files(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for one in folder.iterdir():
        if one.name.startswith((".", "__pycache__")):
            continue
        if one.is_dir():
            yield from _files(one, f"{name}/{one.name}")
        else:
            yield f"{name}/{one.name}", one.read_bytes()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
