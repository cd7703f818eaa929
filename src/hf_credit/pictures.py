"""Images apart from the JSON that holds them: each once, by its digest, however many messages and states have it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from hf_credit.content import MOST_IMAGE_BYTES, Image, Part
from hf_credit.files import remove, write

FOLDER = "pictures"
"""The folder of images next to a file of JSON."""

_IMAGE = re.compile(r'("png": ?")(iVBORw0KGgo[A-Za-z0-9+/]+=?=?)"')
_NAME = re.compile(r'("png": ?")(pictures/[0-9a-f]{64}\.png)"')


def name_of(image: Image) -> str:
    """Returns the name of the file of an image, relative to the folder of the JSON that names it."""
    return f"{FOLDER}/{image.digest}.png"


def naming(found: dict[str, Image]) -> Callable[[Part], Any]:
    """Returns the `default` of `json.dumps` that writes an image as in `apart`, and adds it to those found."""

    def plain(part: Part) -> Any:
        if not isinstance(part, Image):
            return vars(part)
        found[name_of(part)] = part
        return {"png": name_of(part)}

    return plain


def apart(text: str) -> tuple[str, dict[str, Image]]:
    """Returns a JSON text with the name of a file in the place of each image, and the images by these names.

    A text within a text, such as a state as JSON, is left as it is.
    """
    found: dict[str, Image] = {}

    def named(match: re.Match[str]) -> str:
        try:
            image = Image(match[2])
            if base64.b64encode(image.encoded()).decode() != image.png:
                return match[0]
            name = name_of(image)
        except ValueError:  # it only begins like one
            return match[0]
        found[name] = image
        return f'{match[1]}{name}"'

    return _IMAGE.sub(named, text), found


def together(text: str, image_of: Callable[[str], Image | None]) -> str:
    """Returns a JSON text with the images in the place of their names, the inverse of `apart`.

    Args:
        image_of: returns an image by its name; that of an unknown one stays.
    """

    def shown(match: re.Match[str]) -> str:
        image = image_of(match[2])
        return match[0] if image is None else f'{match[1]}{image.png}"'

    return _NAME.sub(shown, text)


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

    def read(name: str) -> Image:
        image, path = None, folder / name
        if path.is_file() and path.stat().st_size <= MOST_IMAGE_BYTES:
            image = Image(base64.b64encode(path.read_bytes()).decode())
        if image is None or image.digest not in name:
            raise ValueError(f"an image must be in its file, got none or another one in {str(path)!r}; copy it again.")
        return image

    return together(text, read)


def names(text: str) -> Iterator[str]:
    """Yields the names of the images that a JSON text has, within texts too."""
    for match in re.finditer(rf"{FOLDER}/[0-9a-f]{{64}}\.png", text):
        yield match[0]


def forget(folder: Path, but: Collection[str] = ()) -> int:
    """Removes the images in a folder but those with these names, and returns the bytes of these."""
    size = 0
    for path in (folder / FOLDER).glob("*.png"):
        if f"{FOLDER}/{path.name}" in but:
            size += path.stat().st_size
        elif re.fullmatch(r"[0-9a-f]{64}\.png", path.name):
            remove(path)
    return size
