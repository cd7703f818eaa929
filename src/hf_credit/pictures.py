"""Images apart from the JSON that holds them: each once, by its digest, however many messages and states have it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hf_credit.content import MOST_IMAGE_BYTES, Image, Part
from hf_credit.files import remove, write

_IMAGE = re.compile(r'(?<="png":)( ?)"(iVBORw0KGgo[A-Za-z0-9+/]+=?=?)"')
_NAME = re.compile(r'(?<="png":)( ?)"(pictures/[0-9a-f]{64}\.png)"')
_FILE = re.compile(r"[0-9a-f]{64}\.png")


def name_of(image: Image) -> str:
    """Returns the name of the file of an image, next to the JSON that names it."""
    return f"pictures/{image.digest}.png"


def naming(found: dict[str, Image]) -> Callable[[Part], Any]:
    """Returns the `default` of `json.dumps` that writes names in the place of images, and adds these to `found`."""
    return lambda part: {"png": _added(part, found)} if isinstance(part, Image) else vars(part)


def _added(image: Image, found: dict[str, Image]) -> str:
    found[name := name_of(image)] = image
    return name


def apart(text: str) -> tuple[str, dict[str, Image]]:
    """Returns a JSON text with names in the place of images, and the images by name; a text within it stays."""
    found: dict[str, Image] = {}

    def named(match: re.Match[str]) -> str:
        with suppress(ValueError):  # it may only look like one
            return f'{match[1]}"{_added(Image(match[2]), found)}"'
        return match[0]

    return _IMAGE.sub(named, text), found


def together(text: str, images: Mapping[str, Image]) -> str:
    """Returns a JSON text with images in the place of their names, the inverse of `apart`; an unknown name stays."""
    return _NAME.sub(lambda match: f'{match[1]}"{images[match[2]].png if match[2] in images else match[2]}"', text)


def keep(text: str, folder: Path) -> str:
    """Returns a JSON text as `apart`, and writes the images to their files in a folder."""
    text, images = apart(text)
    for name, image in images.items():
        if not (folder / name).is_file():
            write(folder / name, image.encoded())
    return text


def kept(text: str, folder: Path) -> str:
    """Returns a JSON text as before `keep`.

    Raises:
        ValueError: an image is missing in the folder, or is another one.
    """
    images = {}
    for name in {match[2] for match in _NAME.finditer(text)}:
        path, encoded = folder / name, b""
        if path.is_file():
            with path.open("rb") as file:
                encoded = file.read(MOST_IMAGE_BYTES)
        if hashlib.sha256(encoded).hexdigest() not in name:
            raise ValueError(f"an image must be in its file, got none or another one in {str(path)!r}; copy it again.")
        images[name] = Image(base64.b64encode(encoded).decode())
    return together(text, images)


def forget(folder: Path, but: str = "") -> None:
    """Removes the images that `keep` wrote to a folder, but those that a text names."""
    for name in {path.name for path in folder.glob("pictures/*.png")} - set(_FILE.findall(but)):
        if _FILE.fullmatch(name):
            remove(folder / "pictures" / name)
