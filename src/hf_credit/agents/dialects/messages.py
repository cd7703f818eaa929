"""The dialect of Anthropic's messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from hf_credit.agents.calls import arguments_of, words_of
from hf_credit.agents.dialects.base import TOO_LONG, Dialect, Event, in_json
from hf_credit.agents.white_lists import (
    COMMON,
    FLAT_FORMAT,
    MARKS,
    TOKENS,
    Needed,
    RefusedCallError,
    Types,
    Unheeded,
    each,
    text_parts,
)
from hf_credit.content import joined, text_of

_BLOCK = each(str, "type") | each(Any, MARKS)
_SEEN = {"source": Needed(Types(base64=each(str, "type media_type data")))}
_BLOCKS = Types(
    text=_BLOCK | {"text": str},
    image=_BLOCK | _SEEN,
    thinking=_BLOCK | {"thinking": str},
    tool_use=_BLOCK | {"id": str, "name": Needed()} | {"input": Mapping[str, Any]},
    tool_result=_BLOCK | {"tool_use_id": str, "is_error": bool, "content": text_parts("text", image=_SEEN)},
)
_TOOL = _BLOCK | each(str, "name description") | {"input_schema": Mapping[str, Any], "strict": Unheeded(bool)}
_BILLING = re.compile(r"^\s*x-anthropic-billing-header:[^\n]*\n?", re.IGNORECASE)  # differs at each call
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_ERRORS = {401: "authentication_error", 404: "not_found_error", 500: "api_error"}
_NO_CACHE = dict.fromkeys(("cache_creation_input_tokens", "cache_read_input_tokens"))


class Messages(Dialect):
    """Anthropic's messages."""

    name, path, marker, counting = "messages", "/messages", "anthropic-version", "/messages/count_tokens"
    shape = (
        COMMON
        | {"messages": [{"role": Needed(Literal["user", "assistant"]), "content": (str, [_BLOCKS])}]}
        | {"tools": [Types(custom=_TOOL)], "tool_choice": each(str, "type name") | {"disable_parallel_tool_use": bool}}
        | {"system": text_parts("text"), "max_tokens": TOKENS, "stop_sequences": [str]}
        | {"thinking": Unheeded(Mapping[str, Any]), "output_config": {"effort": Unheeded(str), "format": FLAT_FORMAT}}
        | {"output_format": FLAT_FORMAT}
    )

    def variables(self, base_url: str, key: str) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"), "ANTHROPIC_API_KEY": key}

    def request(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        given, system = body.get("messages") or [], body.get("system") or []
        if given and given[-1].get("role") == "assistant":
            raise RefusedCallError(
                "the last message of a call must be the user's, got the assistant's, which training cannot continue; "
                "ask for the beginning of the reply in the prompt.",
                "messages",
            )
        text = _BILLING.sub("", text_of(system))
        messages: list[Event] = [{"role": "system", "content": text}] if text else []
        for message in given:
            parts, calls, blocks = [], [], message.get("content")
            for block in [{"text": blocks}] if isinstance(blocks, str) else blocks or []:
                if block.get("type") == "tool_use":
                    function = {"name": block.get("name"), "arguments": block.get("input")}
                    calls.append({"id": block.get("id"), "function": function})
                elif block.get("type") == "tool_result":
                    said, _ = words_of(block)
                    said = joined(("[Tool Error]", said), " ") if block.get("is_error") else said
                    messages.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": said})
                else:
                    parts.append(block)
            if parts or calls or not blocks:
                messages.append({"role": message.get("role"), "content": parts, "tool_calls": calls})
        return body | {
            "messages": messages,
            "tools": [{**tool, "parameters": tool.get("input_schema")} for tool in body.get("tools") or []],
            "stop": body.get("stop_sequences"),
            "response_format": (body.get("output_config") or {}).get("format") or body.get("output_format"),
            "parallel_tool_calls": not (body.get("tool_choice") or {}).get("disable_parallel_tool_use"),
        }

    def reply(self, said: Event, body: Mapping[str, Any]) -> Event:
        (choice,), used = said["choices"], said["usage"]
        message, calls, stop = choice["message"], choice["message"].get("tool_calls", ()), choice["stop_reason"]
        content: list[Event] = []
        if message["content"] or not calls:
            content.append({"type": "text", "text": message["content"] or "", "citations": None})
        for one in calls:
            name, arguments = one["function"]["name"], arguments_of(one["function"]["arguments"])
            content.append({"type": "tool_use", "id": one["id"], "name": name, "input": arguments})
        return (
            {"id": said["id"].replace("chatcmpl-", "msg_"), "type": "message", "role": "assistant"}
            | {"content": content, "model": said["model"], "stop_sequence": None if calls else stop}
            | {"stop_reason": "stop_sequence" if stop and not calls else _REASONS[choice["finish_reason"]]}
            | {
                "usage": {"input_tokens": used["prompt_tokens"], "output_tokens": used["completion_tokens"]}
                | _NO_CACHE
            }
        )

    def events(self, reply: Event, body: Mapping[str, Any]) -> Iterator[Event]:
        begun: Event = {"content": [], "stop_reason": None, "stop_sequence": None}
        yield {"type": "message_start", "message": reply | begun | {"usage": reply["usage"] | {"output_tokens": 0}}}
        empty: Event
        for at, block in enumerate(reply["content"]):
            if block["type"] == "text":
                empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": in_json(block["input"])}
            yield {"type": "content_block_start", "index": at, "content_block": block | empty}
            yield {"type": "content_block_delta", "index": at, "delta": delta}
            yield {"type": "content_block_stop", "index": at}
        ended = {name: reply[name] for name in ("stop_reason", "stop_sequence")}
        yield {"type": "message_delta", "delta": ended, "usage": reply["usage"]}
        yield {"type": "message_stop"}

    def error(self, error: RefusedCallError) -> Event:
        kind = _ERRORS.get(error.status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": str(error)}}

    def too_long(self, tokens: int, most: int) -> RefusedCallError:
        return RefusedCallError(f"prompt is too long: {tokens} tokens > {most} maximum", "messages", 400, TOO_LONG)
