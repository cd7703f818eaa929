"""The dialect of Responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from hf_credit.agents.dialects.base import CREATED, Dialect, Event
from hf_credit.agents.white_lists import (
    CALLED,
    COMMON,
    FLAT_FORMAT,
    FUNCTION,
    REFUSAL,
    TOKENS,
    Needed,
    Types,
    Unheeded,
    each,
    text_parts,
)
from hf_credit.content import text_of

_ITEM, _SEEN = each(str, "type id call_id status"), {"image_url": str, "detail": Unheeded(str)}
_SAID = text_parts("input_text output_text text", refusal=REFUSAL, input_image=_SEEN)
_SUMMARY = {"summary": text_parts("summary_text")[1], "content": text_parts("reasoning_text")[1]}
_ITEMS = Types(
    message=_ITEM | {"role": Needed(), "phase": Any, "content": _SAID},
    function_call=_ITEM | CALLED,
    function_call_output=_ITEM | {"output": _SAID},
    reasoning=_ITEM | _SUMMARY,
)
_ECHOED = {
    **dict.fromkeys(("instructions", "metadata", "max_output_tokens", "max_tool_calls", "reasoning", "text", "user")),
    **dict.fromkeys(("previous_response_id", "prompt", "top_logprobs")),
    **dict.fromkeys(("temperature", "top_p"), 1.0),
    **dict.fromkeys(("frequency_penalty", "presence_penalty"), 0.0),
    **dict.fromkeys(("service_tier", "tool_choice"), "auto"),
    "parallel_tool_calls": True,
    "background": False,
}


class Responses(Dialect):
    """Responses."""

    name, path, messages = "responses", "/responses", "input"
    shape = (
        COMMON
        | {"input": (str, [_ITEMS]), "tools": [Types(function={"type": str} | FUNCTION)]}
        | {"instructions": str, "max_output_tokens": TOKENS, "stream_options": Mapping[str, Any]}
        | {"include": [Literal["message.output_text.logprobs", "reasoning.encrypted_content"]]}
        | {"background": Literal[False], "truncation": Literal["disabled"], "top_logprobs": Literal[0]}
        | {"text": {"format": FLAT_FORMAT, "verbosity": Unheeded(str)}, "reasoning": Unheeded(Mapping[str, Any])}
    )

    def request(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        given, said = body.get("input"), body.get("instructions")
        messages: list[Event] = [{"role": "system", "content": said}] if said else []
        for item in [{"role": "user", "content": given}] if isinstance(given, str) else given or []:
            if item.get("type") == "function_call":
                messages.append({"role": "assistant", "tool_calls": [{"id": item.get("call_id"), "function": item}]})
            elif item.get("type") == "function_call_output":
                result = {"tool_call_id": item.get("call_id"), "content": item.get("output")}
                messages.append({"role": "tool", **result})
            elif item.get("type") == "reasoning":
                said = [*(item.get("summary") or ()), *(item.get("content") or ())]
                messages.append({"role": "assistant", "reasoning_content": text_of(said)})
            else:
                messages.append(item)
        return body | {
            "messages": messages,
            "max_tokens": body.get("max_output_tokens"),
            "response_format": (body.get("text") or {}).get("format"),
            "logprobs": "message.output_text.logprobs" in (body.get("include") or []),
        }

    def reply(self, said: Event, body: Mapping[str, Any]) -> Event:
        (choice,), place = said["choices"], said["id"].removeprefix("chatcmpl-")
        message, calls, used = choice["message"], choice["message"].get("tool_calls", ()), said["usage"]
        cut = choice["finish_reason"] == "length"
        status = "incomplete" if cut else "completed"
        text: Event = {"type": "output_text", "text": message["content"] or "", "annotations": []}
        text["logprobs"] = (choice["logprobs"] or {}).get("content")
        spoken = {"id": f"msg_{place}", "type": "message", "role": "assistant", "content": [text], "status": status}
        output = [
            {"id": f"fc_{place}_{at}", "type": "function_call", "call_id": one["id"], "status": "completed"}
            | one["function"]
            for at, one in enumerate(calls)
        ]
        return (
            {"id": f"resp_{place}", "object": "response", "created_at": CREATED, "model": said["model"]}
            | {name: default if body.get(name) is None else body[name] for name, default in _ECHOED.items()}
            | {"output": [spoken | {"phase": None}, *output] if message["content"] or not calls else output}
            | {"tools": body.get("tools") or [], "truncation": "disabled"}
            | {"status": status, "error": None, "incomplete_details": {"reason": "max_output_tokens"} if cut else None}
            | {
                "usage": {
                    "input_tokens": used["prompt_tokens"],
                    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                    "output_tokens": used["completion_tokens"],
                    "output_tokens_details": {"reasoning_tokens": 0},
                    "total_tokens": used["total_tokens"],
                }
            }
        )

    def events(self, reply: Event, body: Mapping[str, Any]) -> Iterator[Event]:
        for number, (type_, event) in enumerate(self._parts(reply)):
            yield {"type": f"response.{type_}", "sequence_number": number, **event}

    def _parts(self, reply: Event) -> Iterator[tuple[str, Event]]:
        begun = reply | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        yield "created", {"response": begun}
        yield "in_progress", {"response": begun}
        for at, item in enumerate(reply["output"]):
            of, empty = {"output_index": at, "item_id": item["id"]}, {"status": "in_progress"}
            if item["type"] == "message":
                of, (part,) = of | {"content_index": 0}, item["content"]
                logprobs = {"logprobs": part["logprobs"] or []}
                yield "output_item.added", {"output_index": at, "item": item | empty | {"content": []}}
                yield "content_part.added", {**of, "part": part | {"text": "", "logprobs": []}}
                yield "output_text.delta", {**of, "delta": part["text"], **logprobs}
                yield "output_text.done", {**of, "text": part["text"], **logprobs}
                yield "content_part.done", {**of, "part": part}
            else:
                yield "output_item.added", {"output_index": at, "item": item | empty | {"arguments": ""}}
                yield "function_call_arguments.delta", {**of, "delta": item["arguments"]}
                yield "function_call_arguments.done", {**of, "name": item["name"], "arguments": item["arguments"]}
            yield "output_item.done", {"output_index": at, "item": item}
        yield reply["status"], {"response": reply}
