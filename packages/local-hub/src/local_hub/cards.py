"""Reads and checks the metadata at the head of a README.md."""

from __future__ import annotations

import functools
import re
from typing import Any

from starlette.responses import JSONResponse, Response

from local_hub.calls import KINDS, Call, Hub
from local_hub.errors import bad_request
from local_hub.history import Add, Blob
from local_hub.plain import parse_yaml

_MOST_YAML_BYTES = 65_536
_MOST_CARD_BYTES = 2**20
_HEAD = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_COLORS = ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray")
SDKS = ("gradio", "docker", "static", "streamlit")


@functools.lru_cache(maxsize=1024)  # a file is named by its hash, and a list of repositories reads each of them
def card_data(hub: Hub, blob: Blob | None) -> dict[str, Any] | None:
    """Returns the head of a README.md, `None` if there is no valid one."""
    text = _text_of(hub, blob)
    try:
        return None if text is None else read_head(text)
    except ValueError:
        return None


def _text_of(hub: Hub, blob: Blob | None) -> str | None:
    """Returns the text of a card, `None` if it is missing, too long or not UTF-8."""
    if blob is None or blob.size > _MOST_CARD_BYTES:
        return None
    try:
        return hub.objects.path(blob.sha256).read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError):  # `local-hub check` tells of objects that cannot be read
        return None


def read_head(text: str) -> dict[str, Any] | None:
    """Returns the mapping between the first two lines of three dashes.

    Raises:
        ValueError: it is not YAML, not a mapping, or too long.
    """
    match = _HEAD.match(text)
    if match is None:
        return None
    if len(match[1].encode()) > _MOST_YAML_BYTES:
        raise ValueError(f"the head of a card must have at most {_MOST_YAML_BYTES} bytes, got more; shorten it.")
    value = parse_yaml(match[1])
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"the head of a card must be a mapping, got {type(value).__name__}; write name: value.")
    return value


def problems(text: str, kind: str) -> list[str]:
    """Returns the errors in a card of a model, a dataset or a Space."""
    try:
        head = read_head(text) or {}
    except ValueError as error:
        return [str(error)]
    found = []
    license_ = head.get("license")
    if license_ is not None and not isinstance(license_, str | list):
        found.append(f"license must be a text, got {license_!r}; name one.")
    tags = head.get("tags")
    if tags is not None and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        found.append(f"tags must be a list of texts, got {str(tags)[:100]!r}; write one.")
    if kind == "space":
        if "sdk" in head and head["sdk"] not in SDKS:
            found.append(f"sdk must be one of {', '.join(SDKS)}, got {str(head['sdk'])[:50]!r}; pick one.")
        for name in ("colorFrom", "colorTo"):
            if name in head and head[name] not in _COLORS:
                found.append(f"{name} must be one of {', '.join(_COLORS)}, got {str(head[name])[:50]!r}; pick one.")
        if len(str(head.get("short_description", ""))) > 60:
            found.append("short_description must have at most 60 characters, got more; shorten it.")
    return found


def check_card(hub: Hub, kind: str, operation: Add) -> None:
    """Raises `HubError` 400 for a README.md with an invalid head."""
    if operation.path != "README.md":
        return
    text = _text_of(hub, operation.blob)
    if text is None:
        raise bad_request(f"README.md must be UTF-8 of at most {_MOST_CARD_BYTES} bytes, got another file; fix it.")
    if found := problems(text, kind):
        raise bad_request(f"the head of README.md must be valid: {' '.join(found)}")


def validate(call: Call) -> Response:
    """`POST /api/validate-yaml`."""
    values = call.json()
    kind = call.text(values, "repoType", "model")
    if kind not in KINDS.values():
        raise bad_request(f"repoType must be one of {', '.join(KINDS.values())}, got {kind[:50]!r}; pick one.")
    found = problems(call.text(values, "content", most=_MOST_CARD_BYTES), kind)
    body = {"errors": [{"message": one} for one in found], "warnings": []}
    return JSONResponse(body, 400 if found else 200)
