"""What a dialect of calls is: how programs ask in it, and how they are answered, as servers of its SDK do."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from hf_credit.agents.white_lists import RefusedCallError
from hf_credit.boundary import encodable

CREATED = 0
"""The time of every reply, in seconds since 1970: with the real one, no run would repeat."""

TOO_LONG = "context_length_exceeded"

_NO_DETAILS = dict.fromkeys(("prompt_tokens_details", "completion_tokens_details"))
_NO_OTHER = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))

Event = dict[str, Any]


class Dialect(ABC):
    """A way to call a model, which the endpoint speaks if `hf_credit.agents.dialects` lists it.

    Attributes:
        name: in sentences.
        path: the end of its address.
        shape: of its calls, made from those of `hf_credit.agents.white_lists`.
        messages: the parameter with the messages.
        marker: a header that only its SDK sends, so that errors at other addresses have its form, too.
        counting: the end of the address at which a call asks for the number of its tokens alone, if there is one.
    """

    name: ClassVar[str]
    path: ClassVar[str]
    shape: ClassVar[Mapping[str, Any]]
    messages: ClassVar[str] = "messages"
    marker: ClassVar[str] = ""
    counting: ClassVar[str] = ""

    def reads(self, path: str) -> bool:
        """Returns whether an address is one of its calls."""
        return path.endswith((self.path, self.counting or self.path))

    def key(self, headers: Mapping[str, str]) -> str:
        """Returns the key of a call; empty without one."""
        return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")

    def variables(self, base_url: str, key: str) -> dict[str, str]:
        """Returns the environment variables by which its SDK finds the endpoint, whose address ends in /v1."""
        return {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": key}

    @abstractmethod
    def request(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        """Returns a call in the form of chat completions, with its `model`.

        Args:
            body: of the call, of its `shape`.
            path: its address.
        """

    @abstractmethod
    def reply(self, said: Event, body: Mapping[str, Any]) -> Event:
        """Returns the answer to a call.

        Args:
            said: the answer as a chat completion, from `completion`.
            body: of the call.
        """

    @abstractmethod
    def events(self, reply: Event, body: Mapping[str, Any]) -> Iterator[Event]:
        """Yields an answer as the events of a stream."""

    def stream(self, reply: Event, body: Mapping[str, Any]) -> str:
        """Returns the text of a stream."""
        return "".join(f"event: {one['type']}\ndata: {in_json(one)}\n\n" for one in self.events(reply, body))

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
        return RefusedCallError(sentence, self.messages, 400, TOO_LONG)


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


def in_json(value: Any) -> str:
    """Returns a value as JSON, which has no NaN."""
    return json.dumps(value, allow_nan=False)
