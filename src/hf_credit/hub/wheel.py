"""The wheel of the installed library, which a Space brings along: no package index has one from us."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import io
import zipfile
from pathlib import Path

from hf_credit._version import __version__

WHEEL = f"wheels/hf_credit-{__version__}-py3-none-any.whl"
"""Its place in a Space."""


def own_wheel() -> dict[str, bytes]:
    """Returns the wheel of this library as it runs, however it was installed, at its place in a Space."""
    installed, info = importlib.metadata.distribution("hf-credit"), f"hf_credit-{__version__}.dist-info"
    about = ("METADATA", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
    files = {f"{info}/{name}": (installed.read_text(name) or "").encode() for name in about}
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: hf-credit\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    for package in files[f"{info}/top_level.txt"].decode().split():
        folder = Path(str(importlib.resources.files(package)))
        for path in sorted(folder.rglob("*")):
            place = path.relative_to(folder.parent)
            if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in place.parts):
                files[place.as_posix()] = path.read_bytes()
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]).encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, one in files.items():
            archive.writestr(zipfile.ZipInfo(name), one, zipfile.ZIP_DEFLATED)  # without a time
    return {WHEEL: content.getvalue()}
