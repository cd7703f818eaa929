"""The endpoint answers with the fields of vLLM's own server, and with those that the SDK of OpenAI reads.

`tests/vllm/test_stock.py` holds the same table against the server itself.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from stock import STOCK, collapsed, differences

from hf_credit.agents.dialects import completion, dialect_of, read_call

SAID = {"content": "Hi.", "calls": [], "ended": True, "tokens": [9, 2]}
RECORDS = {
    "reply": SAID,
    "cut": {**SAID, "ended": False},
    "called": {**SAID, "content": "", "calls": [["look", '{"at": 1}']]},
    "logprobs": {**SAID, "logprobs": [["Hi", -0.5]]},
}


def answered(name: str, what: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The dialect of a name, and its call and answer."""
    body = {**STOCK[name]["body"], **(STOCK[name].get("asks_logprobs", {}) if what == "logprobs" else {})}
    dialect = dialect_of(STOCK[name]["path"], {})
    read_call(dialect, body)
    return dialect, body, dialect.reply(completion(RECORDS[what], "3", body["model"]), body)


@pytest.mark.parametrize(("name", "what"), [(name, what) for name in STOCK for what in RECORDS if what in STOCK[name]])
def test_answers_have_the_fields_of_the_stock_server(name: str, what: str) -> None:
    assert differences(STOCK[name][what], answered(name, what)[2]) == []


@pytest.mark.parametrize("name", STOCK)
def test_streams_have_the_events_of_the_stock_server(name: str) -> None:
    dialect, body, reply = answered(name, "reply")
    types = [event.get("type") or event["object"] for event in dialect.events(reply, body)]
    assert collapsed(types) == STOCK[name]["stream"]


@pytest.mark.parametrize("what", RECORDS)
def test_the_sdk_of_openai_reads_every_answer_and_event(what: str) -> None:
    types = pytest.importorskip("openai").types
    from pydantic import TypeAdapter

    dialect, body, reply = answered("chat", what)
    types.chat.ChatCompletion.model_validate(reply, strict=True)
    body["stream_options"] = {"include_usage": True}
    chunks = [types.chat.ChatCompletionChunk.model_validate(one, strict=True) for one in dialect.events(reply, body)]
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.total_tokens, chunks[-1].choices) == (11, [])
    (choice,), *_ = [chunk.choices for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert choice.finish_reason == reply["choices"][0]["finish_reason"]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == (reply["choices"][0]["message"]["content"] or "")

    dialect, body, reply = answered("responses", what)
    types.responses.Response.model_validate(reply, strict=True)
    event = TypeAdapter(types.responses.ResponseStreamEvent)
    events = [event.validate_python(one, strict=True) for one in dialect.events(reply, body)]
    assert [one.sequence_number for one in events] == list(range(len(events)))
    assert events[-1].response.model_dump(mode="json", exclude_unset=True) == reply
    items = [one.item for one in events if one.type == "response.output_item.done"]
    assert [one.model_dump(mode="json", exclude_unset=True) for one in items] == reply["output"]
    assert all(item.id for item in items)


def test_a_stream_of_messages_adds_up_to_the_plain_answer() -> None:
    for what in ("reply", "cut", "called"):
        dialect, body, reply = answered("messages", what)
        start, *blocks, delta, stop = dialect.events(reply, body)
        assert (start["message"]["content"], stop) == ([], {"type": "message_stop"})
        assert delta["delta"] == {name: reply[name] for name in ("stop_reason", "stop_sequence")}
        assert delta["usage"] == reply["usage"]
        made = []
        for begun, part, _ in zip(*[iter(blocks)] * 3, strict=True):
            text = part["delta"].get("text")
            added = {"text": text} if text is not None else {"input": json.loads(part["delta"]["partial_json"])}
            made.append(begun["content_block"] | added)
        assert made == reply["content"]
