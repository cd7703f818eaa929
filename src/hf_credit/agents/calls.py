"""Calls of a program, as plain values that can be compared: what an SDK spells in several ways is spelled in one."""

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
"""Parameters that would change what a reply is, each with what to do instead."""

WITHOUT_EFFECT = ("tool_choice", "temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed")
"""Parameters that are taken and have no effect: how replies are drawn is the training's."""


class RefusedCallError(ValueError):
    """A call asks for what cannot be trained on, told in one sentence."""


def refuse(body: Mapping[str, Any]) -> None:
    """Refuses what a call asks for and nobody here can give, before it is translated.

    Args:
        body: of the call, in any dialect.

    Raises:
        RefusedCallError: a parameter is not possible.
    """
    for name, remedy in REFUSED.items():
        if body.get(name):
            raise RefusedCallError(f"a call must not have {name}, got {str(body[name])[:100]!r}; {remedy}.")
    if body.get("n") not in (None, 1):
        raise RefusedCallError(f"n of a call must be 1, got {body['n']!r}; call several times.")
    formats = (body.get("response_format"), (body.get("text") or {}).get("format"), body.get("output_format"))
    for one in formats:
        if one and one.get("type") != "text":
            raise RefusedCallError(
                f"the format of a reply must be text, got {one.get('type')!r}; ask for JSON in the prompt."
            )


def canonical_call(request: Mapping[str, Any]) -> dict[str, Any]:
    """A call in plain values: `model`, `messages`, `tools`, `max_tokens` and `stop`.

    Args:
        request: as chat completions have it.

    Raises:
        RefusedCallError: it has no messages, or a part of one is no text.
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
    """Messages in one spelling: no ids, arguments of tool calls as JSON values, parts of text joined, nothing as empty
    text, and what an assistant said in several messages in one.

    Raises:
        RefusedCallError: a part of one is no text.
    """
    found: list[dict[str, Any]] = []
    for message in messages:
        try:
            content = joined_parts(message.get("content"))
        except ValueError as error:
            raise RefusedCallError(str(error)) from None
        role = {"developer": "system", "function": "tool"}.get(str(message.get("role")), str(message.get("role")))
        one: dict[str, Any] = {"role": role, "content": content}
        if calls := [_tool_call(call) for call in message.get("tool_calls") or []]:
            one["tool_calls"] = calls
        last = found[-1] if found else None
        if last is not None and role == "assistant" == last["role"]:
            last["content"] = "\n".join(text for text in (last["content"], content) if text)
            if both := [*last.get("tool_calls", []), *calls]:
                last["tool_calls"] = both
        else:
            found.append(one)
    return found


def assistant_message(content: str, calls: Sequence[Sequence[str]]) -> dict[str, Any]:
    """A reply as one of `canonical_messages`.

    Args:
        content: what it says beside tool calls.
        calls: the name and the arguments, as JSON, of each.
    """
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [{"name": name, "arguments": _value(arguments)} for name, arguments in calls]
    return message


def shown_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """One of `canonical_messages` as chat templates take it."""
    if "tool_calls" not in message:
        return dict(message)
    return {**message, "tool_calls": [{"type": "function", "function": call} for call in message["tool_calls"]]}


def digest(value: Any) -> str:
    """Of plain values, by which they are compared."""
    return hashlib.blake2b(written(value).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def written(value: Any) -> str:
    """Plain values as JSON, equal ones alike."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Where two calls differ, for people: the message or the field, and how each goes on from there."""
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
    """Arguments as a JSON value; text that is no JSON as it stands."""
    if not isinstance(arguments, str):
        return arguments or {}
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


Canonical = Callable[[dict[str, Any]], Any]
"""From a call to what of it is compared when a run is restored."""
