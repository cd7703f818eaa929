"""Calls of a program as plain values that can be compared, with one form for the several forms of SDKs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hf_credit.rollouts.chat import joined_parts

REFUSED = {
    "previous_response_id": "send the whole conversation with each call",
    "conversation": "send the whole conversation with each call",
    "logit_bias": "leave it out",
}
"""Parameters that training does not support, each with a remedy."""

WITHOUT_EFFECT = ("tool_choice", "temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed")
"""Parameters that are accepted and ignored: training determines how replies are sampled."""


class RefusedCallError(ValueError):
    """A call that training does not support, with a reason in one sentence."""


def refuse(body: Mapping[str, Any]) -> None:
    """Refuses a call with unsupported parameters, before its translation.

    Args:
        body: of the call, in any dialect.

    Raises:
        RefusedCallError: a parameter is not supported.
    """
    for name, remedy in REFUSED.items():
        if body.get(name):
            raise RefusedCallError(f"a call must not have {name}, got {str(body[name])[:100]!r}; {remedy}.")
    if body.get("n") not in (None, 1):
        raise RefusedCallError(f"n of a call must be 1, got {body['n']!r}; call several times.")
    for form in (body.get("response_format"), (body.get("text") or {}).get("format"), body.get("output_format")):
        if form and form.get("type") != "text":
            raise RefusedCallError(
                f"the format of a reply must be text, got {form.get('type')!r}; ask for JSON in the prompt."
            )


def canonical_call(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a call as plain values: `model`, `messages`, `tools`, `max_tokens` and `stop`.

    Args:
        request: of chat completions.

    Raises:
        RefusedCallError: it has no messages, or a part of a message is not text.
    """
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, Mapping) for one in messages):
        raise RefusedCallError("a call must have messages, got none; send at least one.")
    stop = request.get("stop") or []
    most = request.get("max_completion_tokens") or request.get("max_tokens")
    return {
        "model": str(request.get("model") or ""),
        "messages": canonical_messages(messages),
        "tools": [_tool(one) for one in request.get("tools") or []],
        "max_tokens": most if isinstance(most, int) and most > 0 else None,
        "stop": [stop] if isinstance(stop, str) else [str(one) for one in stop],
    }


def canonical_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns messages in canonical form: without ids, arguments of tool calls as JSON values, parts of text joined,
    null as empty text, and consecutive messages of an assistant as one.

    Raises:
        RefusedCallError: a part of a message is not text.
    """
    merged: list[dict[str, Any]] = []
    for message in messages:
        try:
            content = joined_parts(message.get("content"))
        except ValueError as error:
            raise RefusedCallError(str(error)) from None
        role = {"developer": "system", "function": "tool"}.get(str(message.get("role")), str(message.get("role")))
        one: dict[str, Any] = {"role": role, "content": content}
        if calls := [_tool_call(call) for call in message.get("tool_calls") or []]:
            one["tool_calls"] = calls
        last = merged[-1] if merged else None
        if last is not None and role == "assistant" == last["role"]:
            last["content"] = "\n".join(text for text in (last["content"], content) if text)
            if both := [*last.get("tool_calls", []), *calls]:
                last["tool_calls"] = both
        else:
            merged.append(one)
    return merged


def assistant_message(content: str, calls: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Returns a reply as one of `canonical_messages`.

    Args:
        content: its text beside tool calls.
        calls: the name and the arguments, as JSON, of each tool call.
    """
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [{"name": name, "arguments": _value(arguments)} for name, arguments in calls]
    return message


def shown_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one of `canonical_messages` in the form of chat templates."""
    if "tool_calls" not in message:
        return dict(message)
    return {**message, "tool_calls": [{"type": "function", "function": call} for call in message["tool_calls"]]}


def digest(value: Any) -> str:
    """Returns a digest of plain values, for comparisons."""
    return hashlib.blake2b(written(value).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def written(value: Any) -> str:
    """Returns plain values as JSON, the same text for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


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
    one, other = (value if isinstance(value, str) else written(value) for value in (before, after))
    same = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    at = max(0, (min(len(one), len(other)) if same is None else same) - 20)
    return f"...{one[at : at + shown]!r}, then ...{other[at : at + shown]!r}"


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RefusedCallError(f"a tool must be a function with a name, got {str(tool)[:100]!r}; offer no other.")
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    kept = {"name": function["name"], "description": function.get("description") or "", "parameters": parameters}
    return {"type": "function", "function": kept}


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    return {"name": str(function.get("name")), "arguments": _value(function.get("arguments"))}


def _value(arguments: Any) -> Any:
    """Returns arguments as a JSON value, or unchanged if they are not JSON."""
    if not isinstance(arguments, str):
        return arguments or {}
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


Canonical = Callable[[dict[str, Any]], Any]
"""Returns the part of a call that is compared when a run is restored."""
