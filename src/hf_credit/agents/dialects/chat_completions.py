"""The dialect of chat completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from hf_credit.agents.dialects.base import Dialect, Event, in_json
from hf_credit.agents.white_lists import COMMON, FORMAT, FUNCTION, MESSAGE_LIST, TOKENS, Types, Unheeded, each


class ChatCompletions(Dialect):
    """Chat completions, whose form is also that of errors at addresses of no dialect."""

    name, path = "chat completions", "/chat/completions"
    shape = (
        COMMON
        | each(TOKENS, "max_tokens max_completion_tokens")
        | each(Unheeded(str), "reasoning_effort verbosity")
        | {"messages": MESSAGE_LIST, "tools": [Types(function={"type": str, "function": FUNCTION})]}
        | {"stream_options": each(bool, "include_usage include_obfuscation continuous_usage_stats")}
        | {"stop": (str, [str]), "n": Literal[1], "logprobs": bool, "top_logprobs": Literal[0]}
        | {"response_format": FORMAT, "modalities": [Literal["text"]]}
    )

    def request(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        return body

    def reply(self, said: Event, body: Mapping[str, Any]) -> Event:
        return said

    def events(self, reply: Event, body: Mapping[str, Any]) -> Iterator[Event]:
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
        return "".join(f"data: {in_json(one)}\n\n" for one in self.events(reply, body)) + "data: [DONE]\n\n"
