"""The three dialects of calls: how each asks, and how it is answered, streamed or not, as servers of the SDKs do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hf_credit.agents.calls import arguments_of
from hf_credit.agents.formats import schema_of
from hf_credit.agents.white_lists import CHAT, MESSAGES, RESPONSES, RefusedCallError, unheeded
from hf_credit.boundary import encodable
from hf_credit.rollouts.threads import joined_parts

CREATED = 0
"""The time of every reply, in seconds since 1970: with the real one, no run would repeat."""

TOO_LONG = "context_length_exceeded"

_BILLING = re.compile(r"^\s*x-anthropic-billing-header:[^\n]*\n?", re.IGNORECASE)  # differs at each call
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_ERRORS = {401: "authentication_error", 404: "not_found_error", 500: "api_error"}
_ECHOED = {
    **dict.fromkeys(("instructions", "metadata", "max_output_tokens", "max_tool_calls", "reasoning", "text", "user")),
    **dict.fromkeys(("previous_response_id", "prompt", "top_logprobs")),
    **dict.fromkeys(("temperature", "top_p"), 1.0),
    **dict.fromkeys(("frequency_penalty", "presence_penalty"), 0.0),
    **dict.fromkeys(("service_tier", "tool_choice"), "auto"),
    "parallel_tool_calls": True,
    "background": False,
}
_NO_CACHE = dict.fromkeys(("cache_creation_input_tokens", "cache_read_input_tokens"))
_NO_DETAILS = dict.fromkeys(("prompt_tokens_details", "completion_tokens_details"))
_NO_OTHER = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))

Event = dict[str, Any]


class ChatCompletions:
    """The dialect of chat completions, which is also that of errors elsewhere.

    Attributes:
        path: the end of its address.
        shape: of its calls, from `hf_credit.agents.white_lists`.
    """

    path = "/chat/completions"
    shape: Mapping[str, Any] = CHAT

    def request(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns a call in the form of chat completions."""
        return body

    def reply(self, said: Event, body: Mapping[str, Any]) -> Event:
        """Returns the answer to a call.

        Args:
            said: the answer as a chat completion, from `completion`.
            body: of the call.
        """
        return said

    def events(self, reply: Event, body: Mapping[str, Any]) -> Iterator[Event]:
        """Yields an answer as the events of a stream."""
        (choice,) = reply["choices"]
        message, with_usage = choice["message"], (body.get("stream_options") or {}).get("include_usage")
        head = {name: reply[name] for name in ("id", "created", "model", "system_fingerprint")}
        head |= {"object": "chat.completion.chunk"} | ({"usage": None} if with_usage else {})
        deltas: list[Event] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": message["content"]}] if message["content"] else []
        deltas += [{"tool_calls": [{"index": at, **one}]} for at, one in enumerate(message.get("tool_calls", ()))]
        for number, delta in enumerate([*deltas, {}]):
            made = {"index": 0, "delta": delta, "logprobs": choice["logprobs"] if number == 1 else None}
            ended = ("finish_reason", "stop_reason")
            yield head | {"choices": [made | {name: None if delta else choice[name] for name in ended}]}
        if with_usage:
            yield head | {"choices": [], "usage": reply["usage"]}

    def stream(self, reply: Event, body: Mapping[str, Any]) -> str:
        """Returns the text of a stream."""
        return "".join(f"data: {_json(one)}\n\n" for one in self.events(reply, body)) + "data: [DONE]\n\n"

    def error(self, error: RefusedCallError) -> Event:
        """Returns an error in the form of the SDK."""
        about = {"message": str(error), "type": "invalid_request_error", "param": error.param, "code": error.code}
        return {"error": about}

    def too_long(self, tokens: int, most: int) -> RefusedCallError:
        """Returns the error of a context with too many tokens."""
        sentence = (
            f"This model's maximum context length is {most} tokens. However, your messages resulted in {tokens} "
            "tokens. Please reduce the length of the messages."
        )
        return RefusedCallError(sentence, "input" if "input" in self.shape else "messages", 400, TOO_LONG)


class Responses(ChatCompletions):
    """The dialect of Responses."""

    path, shape = "/responses", RESPONSES

    def request(self, body: dict[str, Any]) -> dict[str, Any]:
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
                messages.append({"role": "assistant", "reasoning_content": joined_parts(said)})
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

    def stream(self, reply: Event, body: Mapping[str, Any]) -> str:
        return "".join(f"event: {one['type']}\ndata: {_json(one)}\n\n" for one in self.events(reply, body))


class Messages(Responses):
    """The dialect of Anthropic's messages."""

    path, shape = "/messages", MESSAGES

    def request(self, body: dict[str, Any]) -> dict[str, Any]:
        given, system = body.get("messages") or [], body.get("system") or []
        if given and given[-1].get("role") == "assistant":
            raise RefusedCallError(
                "the last message of a call must be the user's, got the assistant's, which training cannot continue; "
                "ask for the beginning of the reply in the prompt.",
                "messages",
            )
        text = _BILLING.sub("", joined_parts(system))
        messages: list[Event] = [{"role": "system", "content": text}] if text else []
        for message in given:
            parts, calls, blocks = [], [], message.get("content")
            for block in [{"text": blocks}] if isinstance(blocks, str) else blocks or []:
                if block.get("type") == "tool_use":
                    function = {"name": block.get("name"), "arguments": block.get("input")}
                    calls.append({"id": block.get("id"), "function": function})
                elif block.get("type") == "tool_result":
                    said = joined_parts(block.get("content"))
                    said = f"[Tool Error] {said}" if block.get("is_error") else said
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
                empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": _json(block["input"])}
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


def completion(record: Mapping[str, Any], place: str, model: str) -> Event:
    """Returns a recorded reply as a chat completion.

    Args:
        record: as in `hf_credit.agents.states.AnsweredCall`.
        place: of the reply in the run, for ids.
        model: of the call.
    """
    record = encodable(record)
    calls = [
        {"id": f"call_{place}_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(record["calls"])
    ]
    message = {"role": "assistant", "content": record["content"] or (None if calls else "")} | _NO_OTHER
    logprobs = [
        {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}
        for token, logprob in record.get("logprobs", ())
    ]
    finish = "tool_calls" if calls else "stop" if record["ended"] or record.get("stop") else "length"
    choice = {
        "index": 0,
        "message": message | ({"tool_calls": calls} if calls else {}),
        "logprobs": {"content": logprobs, "refusal": None} if "logprobs" in record else None,
        "finish_reason": finish,
        "stop_reason": record.get("stop"),
        "token_ids": None,
    }
    prompt, said = record.get("tokens", (0, 0))
    usage = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
    return (
        {"id": f"chatcmpl-{place}", "object": "chat.completion", "created": CREATED, "model": model}
        | {"choices": [choice], "usage": usage | _NO_DETAILS}
        | dict.fromkeys(("service_tier", "system_fingerprint", "prompt_logprobs", "prompt_token_ids"))
        | {"kv_transfer_params": None}
    )


def dialect_of(path: str, headers: Mapping[str, str]) -> ChatCompletions:
    """Returns the dialect of an address, or that of an error at another one."""
    known = [one for one in _DIALECTS if path.removesuffix("/count_tokens").endswith(one.path)]
    return known[0] if known else _DIALECTS[2 if "anthropic-version" in headers else 0]


def read_call(dialect: ChatCompletions, body: Any) -> tuple[dict[str, Any], int]:
    """Returns a call in the form of chat completions, and the number of its values without effect.

    Raises:
        RefusedCallError: the call has what training does not support.
    """
    ignored = unheeded(body, dialect.shape)
    call = dialect.request(body)
    choice = call.get("tool_choice")
    choice = choice.get("type") if isinstance(choice, Mapping) else choice
    call["format"] = schema_of(call.get("response_format"))
    call["most_calls"] = 0 if choice == "none" else 1 if call.get("parallel_tool_calls") is False else None
    return call, ignored + (choice not in (None, "auto", "none"))


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


_DIALECTS = (ChatCompletions(), Responses(), Messages())
