"""Calls of a program as plain values that can be compared, with one form for the several forms of SDKs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NotRequired, TypedDict
from weakref import WeakValueDictionary

from hf_credit.agents.white_lists import RefusedCallError
from hf_credit.boundary import Range, encodable, read
from hf_credit.content import Content, Image, Part, content_of, joined
from hf_credit.rollouts.special_tokens import plain_role
from hf_credit.safe_io import parse_json
from hf_credit.validators import shown

_decoded: WeakValueDictionary[bytes, Image] = WeakValueDictionary()  # as each call has all images of those before


class _Tool(TypedDict):
    name: Annotated[str, Range(1, 256)]
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any] | None]


def canonical_call(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a call as plain values: `model`, `messages`, `tools`, `max_tokens`, `stop`, `logprobs` and `most_calls`,
    and `format`, the JSON schema of the reply, if it asks for one.

    Args:
        request: from `hf_credit.agents.dialects.read_call`.

    Raises:
        RefusedCallError: it has no messages, or these are refused.
    """
    stop, schema = request.get("stop") or [], request.get("format")
    if not request.get("messages"):
        raise RefusedCallError("messages of a call must be of a length at least 1, got none; add one.", "messages")
    return {
        "model": request.get("model") or "",
        "messages": canonical_messages(request["messages"]),
        "tools": canonical_tools(request.get("tools") or ()),
        "max_tokens": request.get("max_completion_tokens") or request.get("max_tokens"),
        "stop": [stop] if isinstance(stop, str) else stop,
        "logprobs": bool(request.get("logprobs")),
        "most_calls": request.get("most_calls"),
        **({"format": schema} if schema else {}),
    }


def canonical_messages(messages: Sequence[Mapping[str, Any]], merged: bool = True) -> list[dict[str, Any]]:
    """Returns messages in canonical form: arguments of tool calls by name, parts of text joined, null as empty text.

    An assistant's thoughts are its `reasoning_content`, whatever field or part has them, and a refusal is content. Ids
    are left out: the result of another than the next call of its turn has the place of its call, from 0, as `answers`.

    Args:
        messages: with the fields of `hf_credit.agents.white_lists.MESSAGE_LIST`.
        merged: whether consecutive messages of an assistant become one.

    Raises:
        ValueError: a part of a message is neither text nor an image, or a message has what its role cannot have.
    """
    found: list[dict[str, Any]] = []
    waiting: dict[int, tuple[Any, str]] = {}  # by place in the turn, the id and name of each call without a result
    for number, given in enumerate(messages, start=1):
        one, called = _canonical(given, number)
        last = found[-1] if merged and found and one["role"] == "assistant" == found[-1]["role"] else None
        if one["role"] == "assistant":
            first = 0 if last is None else len(last.get("tool_calls", ()))
            waiting = ({} if last is None else waiting) | dict(enumerate(called, start=first))
        elif one["role"] == "tool" and waiting:
            place = _answered(given, waiting, number)
            one |= {} if place == next(iter(waiting)) else {"answers": place}
            del waiting[place]
        if last is None:
            found.append(one)
            continue
        for name in ("content", "reasoning_content"):
            last |= {name: said} if (said := joined(it[name] for it in (last, one) if it.get(name))) else {}
        last |= {"tool_calls": [*last.get("tool_calls", ()), *one["tool_calls"]]} if called else {}
    return found


def _canonical(given: Mapping[str, Any], number: int) -> tuple[dict[str, Any], list[tuple[Any, str]]]:
    """Returns a message in canonical form, and the id and name of each of its calls."""
    try:
        role = plain_role(given["role"])
    except ValueError as error:
        raise RefusedCallError(str(error)) from None
    role = {"developer": "system", "function": "tool"}.get(role, role)
    (content, thoughts), legacy = words_of(given), given.get("function_call")
    made = [*(given.get("tool_calls") or ()), *([{"function": legacy}] if legacy else ())]
    if role != "assistant" and (made or thoughts):
        raise RefusedCallError(f"thoughts and calls must be an assistant's, got them of {role!r} in message {number}.")
    if role == "assistant" and not isinstance(content, str):
        raise RefusedCallError(f"an assistant's message must be text, got an image in message {number}; remove it.")
    one: dict[str, Any] = {"role": role, "content": content} | ({"reasoning_content": thoughts} if thoughts else {})
    functions = [call["function"] for call in made]
    if functions:
        one["tool_calls"] = [{"name": it["name"], "arguments": arguments_of(it.get("arguments"))} for it in functions]
    return one, [(call.get("id"), call["function"]["name"]) for call in made]


def _answered(result: Mapping[str, Any], calls: Mapping[int, tuple[Any, str]], number: int) -> int:
    """Returns the place of the call that a result answers: by its id, else by its name, else the next one."""
    wanted, name = result.get("tool_call_id"), result.get("name") or result.get("tool_name")
    by_id = (place for place, (own, _) in calls.items() if wanted and own == wanted)
    if (place := next(by_id, None)) is not None:
        return place
    if wanted and all(own for own, _ in calls.values()):
        raise RefusedCallError(
            f"a result of a tool must have the id of a call of the turn before it, without another result, got "
            f"{str(wanted)[:100]!r} in message {number}; correct it."
        )
    return next((place for place, (_, called) in calls.items() if called == name), next(iter(calls)))


_IMAGES = ("image_url", "input_image", "image")  # of chat completions, Responses and Messages
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks")


def words_of(message: Mapping[str, Any]) -> tuple[Content, str]:
    """Returns the content and the thoughts of a message.

    Raises:
        ValueError: an image is not in it, or as for `hf_credit.content.Image.of`.
    """
    content = message.get("content")
    parts = content if isinstance(content, list | tuple) else [content]
    kinds = [part.get("type") if isinstance(part, Mapping) else None for part in parts]
    within = [part for part, kind in zip(parts, kinds, strict=True) if kind in _THOUGHTS]
    thoughts: dict[str, str] = {}  # a server may say the same ones in several fields
    for text in map(_text, (*(message.get(name) for name in _THOUGHTS), within)):
        thoughts.setdefault("".join(text.split()), text)
    spoken = joined(_said(part, kind) for part, kind in zip(parts, kinds, strict=True) if kind not in _THOUGHTS)
    return joined(filter(None, (spoken, message.get("refusal")))), "\n".join(filter(str.strip, thoughts.values()))


def _said(part: Any, kind: str | None) -> Content:
    if isinstance(part, Part) or (kind == "image" and "source" not in part):
        return content_of([part])
    return (_image(part),) if kind in _IMAGES else _text(part)


def _image(part: Mapping[str, Any]) -> Image:
    given = part.get("image_url") or f"data:;base64,{part.get('source', {}).get('data') or ''}"
    url = (given.get("url") or "") if isinstance(given, Mapping) else given
    head, _, data = url.partition(";base64,")
    if not data or not head.startswith("data:"):
        raise RefusedCallError(
            "an image of a call must be a data URL in base64, since nothing is fetched, got "
            f"{shown(url[:60])}; send the image itself.",
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


def _text(value: Any) -> str:
    """Returns the text of a part, or of parts, which have it in a field named after their type."""
    if isinstance(value, Mapping):
        value = next(
            (value[name] for name in ("text", "thinking", "reasoning", "summary", "refusal") if name in value), ""
        )
    return "\n".join(map(_text, value)) if isinstance(value, list | tuple) else value or ""


def assistant_message(content: str, calls: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Returns a reply as one of `canonical_messages`."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [{"name": name, "arguments": arguments_of(written)} for name, written in calls]
    return message


def shown_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one of `canonical_messages` in the form of chat templates."""
    calls = [{"type": "function", "function": call} for call in message.get("tool_calls", ())]
    return {**message, "tool_calls": calls} if calls else dict(message)


def digest(value: Any) -> str:
    """Returns a digest of plain values, for comparisons."""
    return hashlib.blake2b(written(value).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def written(value: Any, default: Callable[[Any], Any] | None = vars) -> str:
    """Returns plain values as JSON, the same text for equal values; `default` is as in `json.dumps`."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=default)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describes where two calls differ: the message or the field, and both texts from there."""
    for number, (one, other) in enumerate(zip(before["messages"], after["messages"], strict=False), start=1):
        if one != other:
            name = next(key for key in {**one, **other} if one.get(key) != other.get(key))
            what = f"message {number} ({one['role']}), {name}"
            return f"{what}: {_parting(one.get(name), other.get(name))}"
    if len(before["messages"]) != len(after["messages"]):
        return f"{len(before['messages'])} messages, then {len(after['messages'])}"
    changed = [name for name in before if before[name] != after.get(name)]
    return "; ".join(f"{name}: {_parting(before[name], after.get(name))}" for name in changed) or "nothing"


def _parting(before: Any, after: Any, shown: int = 60) -> str:
    was, now = (value if isinstance(value, str) else written(value) for value in (before, after))
    same = next((at for at, pair in enumerate(zip(was, now, strict=False)) if pair[0] != pair[1]), None)
    at = max(0, (min(len(was), len(now)) if same is None else same) - 20)
    return f"...{was[at : at + shown]!r}, then ...{now[at : at + shown]!r}"


def canonical_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the tools of a call in canonical form.

    Raises:
        RefusedCallError: one has another shape.
    """
    found = []
    try:
        given = read(list[dict[str, Any]], tools, "the tools of a call")
        read_tools: list[_Tool] = read(list[_Tool], [one.get("function", one) for one in given], "the tools of a call")
    except ValueError as error:
        raise RefusedCallError(str(error)) from None
    for tool in read_tools:
        parameters = tool.get("parameters") or {"type": "object", "properties": {}}
        kept = {"name": tool["name"], "description": tool.get("description") or "", "parameters": parameters}
        found.append({"type": "function", "function": kept})
    return found


def arguments_of(written: Any) -> Mapping[str, Any]:
    """Returns arguments by name, as templates and Anthropic's dialect have them: none as an empty object, and others
    as its field `arguments`."""
    if isinstance(written, str) and written:
        with suppress(ValueError):
            written = encodable(parse_json(written, broken_text=True, finite=True))
    if written in (None, ""):
        return {}
    return written if isinstance(written, Mapping) else {"arguments": written}


def estimated_tokens(text: str) -> int:
    """Returns about the number of tokens of a text, where no tokenizer is known."""
    return max(1, len(text) // 4)
