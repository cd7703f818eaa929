"""What a message says: text, or parts, if one of them is no text.

It enters by `content_of`, from an environment, a call of a program or a log, and stays as it is up to
`hf_credit.rollouts.Chat`, the one place where a model reads it. Who reads text alone asks for `text_of`, and who shows
it to people for `in_words`. Another kind of part is a class here, in `Part`.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from hf_credit.optional_packages import needed

MOST_PIXELS = 2**24
"""Of an image, before it is decoded: one of 4096 x 4096."""
MOST_IMAGE_BYTES = 2**25
"""Of an encoded image."""

_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@dataclass(frozen=True)
class Text:
    """The text of a message that has other parts, too."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, repr=False)
class Image:
    """A picture, as plain text.

    Args:
        png: a PNG file in base64; `of` makes it from other images.

    Raises:
        ValueError: it is not the beginning of a PNG file, or too large (`MOST_PIXELS`, `MOST_IMAGE_BYTES`).
    """

    png: str

    def __post_init__(self) -> None:
        try:
            begun = base64.b64decode(self.png[:44], validate=True).startswith(_PNG)
        except ValueError:
            begun = False
        if not begun:
            raise ValueError(f"an image must be a PNG file in base64, got {self.png[:20]!r}; make it with Image.of.")
        _require_bounds(len(self.png) * 3 // 4, self.size)

    @classmethod
    def of(cls, given: Any) -> Image:
        """Returns the part of an image, upright, in RGB or RGBA.

        Args:
            given: an image of PIL, or the bytes of a PNG, JPEG, WEBP or GIF file, whose first frame it is.

        Raises:
            ValueError: it is none of these, or too large (`MOST_PIXELS`, `MOST_IMAGE_BYTES`).
        """
        pil = needed("images need", "PIL.ImageOps", "vision")
        image = _opened(given) if isinstance(given, bytes) else given
        if not isinstance(image, pil.Image.Image):
            raise ValueError(f"an image must be one of PIL, got {type(given).__name__}; convert it.")
        _require_bounds(0, image.size)
        written = io.BytesIO()
        upright = pil.exif_transpose(image)
        upright = upright.convert("RGBA" if upright.has_transparency_data else "RGB")
        upright.info.clear()
        upright.save(written, "PNG", compress_level=1)
        return cls(base64.b64encode(written.getvalue()).decode())

    @property
    def size(self) -> tuple[int, int]:
        """Its width and height in pixels."""
        header = base64.b64decode(self.png[:44])
        return int.from_bytes(header[16:20]), int.from_bytes(header[20:24])

    @property
    def digest(self) -> str:
        """SHA-256 of the PNG file, in hexadecimal."""
        if (known := _DIGESTS.get(self)) is None:
            known = _DIGESTS[self] = hashlib.sha256(self.encoded()).hexdigest()
        return known

    def encoded(self) -> bytes:
        """Returns the PNG file."""
        return base64.b64decode(self.png)

    def pil(self) -> Any:
        """Returns the image of PIL, decoded.

        Raises:
            ValueError: the rest of the file is broken.
        """
        return _opened(self.encoded())

    def __str__(self) -> str:
        width, height = self.size
        return f"[image {width}x{height} {self.digest[:8]}]"

    def __repr__(self) -> str:
        return f"Image of {self.digest}"


_DIGESTS: WeakKeyDictionary[Image, str] = WeakKeyDictionary()


def _opened(encoded: bytes) -> Any:
    images = needed("images need", "PIL.Image", "vision")
    _require_bounds(len(encoded), (1, 1))
    try:
        image = images.open(io.BytesIO(encoded), formats=_FORMATS)
    except Exception:  # PIL's decoders raise many types
        raise ValueError(
            f"an image must be a file of {', '.join(_FORMATS)} of at most {MOST_PIXELS} pixels, got {len(encoded)} "
            "bytes that are none; send another."
        ) from None
    _require_bounds(len(encoded), image.size)
    try:
        image.load()
    except Exception as error:
        raise ValueError(f"an image must be a whole file, got one that fails: {error}; send it again.") from None
    return image


def _require_bounds(size: int, pixels: tuple[int, int]) -> None:
    if size > MOST_IMAGE_BYTES or not 0 < pixels[0] * pixels[1] <= MOST_PIXELS:
        width, height = pixels
        raise ValueError(
            f"an image must have 1 to {MOST_PIXELS} pixels and at most {MOST_IMAGE_BYTES} bytes, got {width}x{height} "
            f"pixels in {size} bytes; make it smaller."
        )


Part = Text | Image
"""A part of a message: a frozen dataclass of plain values, whose text is how people see it."""

Content = str | tuple[Part, ...]
"""What a message says."""


def content_of(given: Any) -> Content:
    """Returns what a message says.

    Args:
        given: text; parts, or the same in the form of chat templates, such as `{"type": "text", "text": "..."}` and
            `{"type": "image", "image": an image of PIL}`; or `None` for no text.

    Raises:
        ValueError: a part is of no known kind, or as for `Image.of`.
    """
    if isinstance(given, str):
        return given
    return joined(map(_read, () if given is None else given if isinstance(given, list | tuple) else [given]))


def joined(contents: Iterable[Content], between: str = "\n") -> Content:
    """Returns several contents as one: texts with `between` in between, or the parts of all."""
    contents = list(contents)
    texts = [one for one in contents if isinstance(one, str)]
    if len(texts) == len(contents):
        return between.join(texts)
    return tuple(part for one in contents for part in ([Text(one)] if isinstance(one, str) else one))


def parts_of(given: Any) -> tuple[Part, ...]:
    """Returns what a message says, as `content_of`, in parts even if it is text."""
    content = content_of(given)
    return (Text(content),) if isinstance(content, str) else content


def texts_in(given: Any) -> list[str]:
    """Returns the texts among the parts of what a message says, as `content_of`."""
    return [part.text for part in parts_of(given) if isinstance(part, Text)]


def text_of(given: Any) -> str:
    """Returns what a message says, as `content_of`, for who reads text alone.

    Raises:
        ValueError: a part is not text.
    """
    return "\n".join(part.text if isinstance(part, Text) else _refused(part) for part in parts_of(given))


def in_words(given: Any) -> str:
    """Returns what a message says for people, as `content_of`."""
    return "\n".join(map(str, parts_of(given)))


def plain_image(given: Any) -> Any:
    """Returns an image of PIL as plain values, and anything else as its text: a `default` of `json.dumps`."""
    return vars(Image.of(given)) if has_images(given) else str(given)


def has_images(given: Any) -> bool:
    """Returns whether a value, of any kind, has an image where `content_of` reads one."""
    parts = given if isinstance(given, list | tuple) else [given]
    images = (one.get("image") if isinstance(one, Mapping) else one for one in parts)
    return any(isinstance(one, Image) or type(one).__module__.startswith("PIL.") for one in images)


def _read(given: Any) -> Content:
    known = isinstance(given, Mapping)
    image = given.get("image") if known else given
    if isinstance(image, Part):
        return (image,)
    if type(image).__module__.startswith("PIL."):
        return (Image.of(image),)
    text = given.get("text") if known and image is None else given
    return text if isinstance(text, str) else _refused(given)


def _refused(part: Any) -> NoReturn:
    raise ValueError(f"a message must be text or parts of text, got {str(part)[:100]!r}; remove other parts.")
