"""The endpoint answers in three dialects, streamed or not, and repeats its answers exactly."""

from __future__ import annotations

import http.client
import json
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hf_credit.agents import AgentInteraction
from hf_credit.agents.calls import canonical_call, canonical_messages, difference
from hf_credit.agents.endpoint import Call, Endpoint

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
LOOKED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_3_0", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}],
}
SAID = {"role": "assistant", "content": "Hello."}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.shut()


def send(endpoint: Endpoint, path: str, body: Any, headers: dict[str, str]) -> tuple[int, str]:
    connection = http.client.HTTPConnection(endpoint.base_url.removeprefix("http://").removesuffix("/v1"))
    connection.request("POST", path, body if isinstance(body, str) else json.dumps(body), headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


Ask = Callable[..., tuple[int, str, dict[str, Any]]]


@pytest.fixture
def ask(endpoint: Endpoint) -> Iterator[Ask]:
    """Makes a call and answers it with a message; returns the status, the text of the answer, and the call."""
    told: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    keys = endpoint.open(lambda kind, what: told.put((kind, what)))

    def ask(path: str, body: Any, message: dict[str, Any] = SAID, key: str = "", **headers: str) -> Any:
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(send, endpoint, path, body, {"authorization": f"Bearer {key or keys[0]}", **headers})
            kind, what = told.get(timeout=60)
            if kind != "call":
                return (*sent.result(), {"refused": what})
            assert isinstance(what, Call)
            what.answer(message, "tool_calls" if message.get("tool_calls") else "stop", "3")
            return (*sent.result(), what.asked)

    yield ask
    endpoint.close(keys)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
CALLS = {
    CHAT: {"model": "m", "messages": [{"role": "developer", "content": "s"}, user("q")], "tools": TOOLS},
    RESPONSES: {
        "model": "m",
        "instructions": "s",
        "input": "q",
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}],
    },
    MESSAGES: {
        "model": "m",
        "max_tokens": 9,
        "system": "s",
        "messages": [user([{"type": "text", "text": "q"}])],
        "tools": [{"name": "look", "input_schema": {"type": "object", "properties": {}}}],
    },
}


def test_three_dialects_ask_for_the_same(ask: Ask) -> None:
    for path, body in CALLS.items():
        _, _, asked = ask(path, body)
        assert asked["messages"] == [{"role": "system", "content": "s"}, user("q")]
        assert [tool["function"]["name"] for tool in asked["tools"]] == ["look"]
        assert (asked["model"], asked["max_tokens"]) == ("m", 9 if path == MESSAGES else None)


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("message", [SAID, LOOKED], ids=["text", "tool"])
def test_an_answer_is_the_same_to_the_letter_each_time(
    ask: Ask, path: str, stream: bool, message: dict[str, Any]
) -> None:
    status, text, _ = ask(path, {**CALLS[path], "stream": stream}, message)
    assert status == 200
    assert ask(path, {**CALLS[path], "stream": stream}, message)[1] == text
    if message is SAID:
        assert "Hello." in text
    else:
        assert "look" in text
        assert ("call_3_0" in text) or path == CHAT
    assert text.startswith(("data: {", "event: ")) == stream
    assert ("data: [DONE]" in text) == (stream and path == CHAT)


@pytest.mark.parametrize(
    ("path", "changed", "told"),
    [
        (
            RESPONSES,
            {"previous_response_id": "resp_1"},
            "a call must not have previous_response_id, got 'resp_1'; send",
        ),
        (RESPONSES, {"conversation": "c"}, "a call must not have conversation"),
        (CHAT, {"n": 2}, "n of a call must be 1, got 2"),
        (CHAT, {"logit_bias": {"1": 1}}, "a call must not have logit_bias"),
        (CHAT, {"response_format": {"type": "json_object"}}, "the format of a reply must be text, got 'json_object'"),
        (RESPONSES, {"text": {"format": {"type": "json_schema"}}}, "the format of a reply must be text"),
        (CHAT, {"messages": [user([{"type": "image_url", "image_url": {"url": "x"}}])]}, "text or parts of text"),
        (CHAT, {"messages": []}, "a call must have messages"),
        (CHAT, {"tools": [{"type": "web_search"}]}, "a tool must be a function with a name"),
        (MESSAGES, {"messages": "q"}, "a call must follow its API"),
        ("/v1/embeddings", {}, "a call must be one of chat completions, responses or messages"),
        ("/v1/messages/count_tokens", {}, "a call must be one of chat completions, responses or messages"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_one_sentence(
    ask: Ask, path: str, changed: dict[str, Any], told: str
) -> None:
    status, text, asked = ask(path, {**CALLS.get(path, CALLS[CHAT]), **changed})
    assert status == 400
    assert told in json.loads(text)["error"]["message"]
    assert told in asked["refused"]


def test_what_is_no_call_is_refused(ask: Ask) -> None:
    for body in ("no JSON", "[]", "[" * 100_000):
        assert ask(CHAT, body)[0] == 400


def test_a_waiting_call_ends_with_its_run(endpoint: Endpoint) -> None:
    told: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    keys = endpoint.open(lambda kind, what: told.put((kind, what)))
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send, endpoint, CHAT, CALLS[CHAT], {"x-api-key": keys[0]})
        told.get(timeout=60)
        endpoint.close(keys)
        assert sent.result()[0] == 401


def test_what_has_no_effect_is_counted(endpoint: Endpoint, ask: Ask) -> None:
    accepted = {"temperature": 0.1, "top_p": 0.5, "tool_choice": "required"}
    status, _, asked = ask(CHAT, {**CALLS[CHAT], **accepted})
    assert (status, asked.keys()) == (200, {"model", "messages", "tools", "max_tokens", "stop"})


def test_an_sdk_reads_the_answers() -> None:
    pytest.importorskip("openai")
    interaction = AgentInteraction("agent_on_openai:through_sdk")
    for _ in range(2):
        asked = []
        state = interaction.start({"number": 1}, 0)
        while requests := interaction.pending(state):
            asked.append([message["content"] for message in requests[0].messages])
            state = interaction.advance(state, ["ab"])
        assert asked == [["chat?"], ["stream?"], ["Be brief.", "responses?"], ["chatcmpl-2 chatcmpl-0 streamed?"]]
    assert interaction.outcome(state) == len("ab ab ab response.completed")
    interaction.close()


# One spelling


def called(arguments: Any, **more: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"id": "x", "function": {"name": "look", "arguments": arguments}}],
        **more,
    }


def test_messages_that_mean_the_same_are_spelled_alike() -> None:
    plain = canonical_messages([called('{"at":1}')])
    for other in (called('{ "at": 1 }', content=None), called({"at": 1}, content=""), called('{"at": 1}', content=[])):
        assert canonical_messages([other]) == plain
    apart = [{"role": "assistant", "content": "a"}, called('{"at": 1}'), {"role": "assistant", "content": "b"}]
    assert canonical_messages(apart) == canonical_messages([called('{"at": 1}', content="a\nb")])
    assert canonical_messages([called("{broken")])[0]["tool_calls"][0]["arguments"] == "{broken"


def test_the_difference_of_two_calls_names_the_message_and_the_part() -> None:
    calls = [canonical_call({"messages": [user("q"), user(f"the time is {now}")]}) for now in ("10:01", "10:02")]
    assert difference(*calls) == "message 2 (user), content: ...'the time is 10:01', then ...'the time is 10:02'"
    assert difference(calls[0], {**calls[0], "max_tokens": 3}) == "max_tokens: ...'null', then ...'3'"
    assert difference(calls[0], {**calls[0], "messages": calls[0]["messages"][:1]}) == "2 messages, then 1"
