"""Images in calls, in the forms of all dialects. Nothing is fetched: a call has the image itself."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from hf_credit.agents.white_lists import RefusedCallError
from hf_credit.content import Image
from hf_credit.validators import shown

_decoded: WeakValueDictionary[bytes, Image] = WeakValueDictionary()  # as each call has all images of those before


def image_of(part: Mapping[str, Any]) -> Image:
    """Returns the image of a part of a call, of one of the types of `hf_credit.agents.white_lists.IMAGES`.

    Raises:
        ValueError: it is not in base64, no image or too large, as `hf_credit.content.Image.of`.
    """
    given = part["source"].get("data") if part["type"] == "image" else part.get("image_url")
    given = (given.get("url") if isinstance(given, Mapping) else given) or ""
    head, _, data = given.partition(";base64,") if part["type"] != "image" else ("data:", "", given)
    if not head.startswith("data:") or not data:
        raise RefusedCallError(
            "an image of a call must be a data URL in base64, since nothing is fetched, got "
            f"{shown(given[:60])}; send the image itself.",
            code="unsupported_parameter",
        )
    key = hashlib.blake2b(data.encode("utf-8", "surrogatepass")).digest()
    image = _decoded.get(key)
    if image is None:
        try:
            encoded = base64.b64decode(data, validate=True)
        except ValueError as error:
            raise RefusedCallError(f"an image of a call must be in base64, got {error}; encode it.") from None
        image = _decoded[key] = Image.of(encoded)
    return image
