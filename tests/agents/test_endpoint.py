"""The endpoint answers in three dialects, streamed or not, and repeats its answers exactly."""

from __future__ import annotations

import base64
import http.client
import io
import json
import queue
import socket
import string
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as pil

from hf_credit.agents import AgentInteraction
from hf_credit.agents.calls import assistant_message, canonical_call, canonical_messages, difference, shown_message
from hf_credit.agents.dialects import completion, dialect_of, read_call
from hf_credit.agents.endpoint import Call, Endpoint
from hf_credit.agents.white_lists import RefusedCallError
from hf_credit.content import Image, Text
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat
from hf_credit.rollouts.templates import as_served

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
LOOKED = {"content": "", "calls": [["look", '{"at": 1}']], "ended": True, "tokens": [20, 9]}
SAID = {"content": "Hello.", "calls": [], "ended": True, "tokens": [20, 3]}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.shut()


def send(endpoint: Endpoint, path: str, body: Any, headers: dict[str, str], method: str = "POST") -> tuple[int, str]:
    connection = http.client.HTTPConnection(endpoint.base_url.removeprefix("http://").removesuffix("/v1"))
    connection.request(method, path, body if isinstance(body, str) else json.dumps(body), headers)
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
                return (*sent.result(), {kind: what})
            assert isinstance(what, Call)
            what.answer(message, "3")
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
        assert "call_3_0" in text
    assert text.startswith(("data: {", "event: ")) == stream
    assert ("data: [DONE]" in text) == (stream and path == CHAT)


RED = Image.of(pil.new("RGB", (4, 3), "red"))


def red_part(path: str, data: str = RED.png, head: str = "data:image/png;base64,") -> dict[str, Any]:
    """A part with an image, as the SDKs of the dialects write it."""
    if path == MESSAGES:
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    if path == RESPONSES:
        return {"type": "input_image", "detail": "auto", "image_url": head + data}
    return {"type": "image_url", "image_url": {"url": head + data, "detail": "low"}}


def with_parts(path: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """A call with these parts in its last message."""
    name = "input" if path == RESPONSES else "messages"
    text = {"type": "input_text" if path == RESPONSES else "text", "text": "q"}
    return {**CALLS[path], name: [user([text, *parts])]}


@pytest.mark.parametrize("path", CALLS)
def test_an_image_is_a_part_of_a_message_in_every_dialect(ask: Ask, path: str) -> None:
    status, _, asked = ask(path, with_parts(path, red_part(path)))
    assert (status, asked["messages"][-1]) == (200, user((Text("q"), RED)))


def test_the_result_of_a_tool_has_images_in_every_dialect(ask: Ask) -> None:
    made = {"type": "tool_use", "id": "x", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "x", "is_error": True, "content": [red_part(MESSAGES)]}
    of_messages = {"messages": [user("q"), {"role": "assistant", "content": [made]}, user([result])]}
    called = {"type": "function_call", "call_id": "x", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "x", "output": [red_part(RESPONSES)]}
    call = {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "look", "arguments": "{}"}}]}
    of_chat = {"messages": [user("q"), call, {"role": "tool", "tool_call_id": "x", "content": [red_part(CHAT)]}]}
    for path, changed, content in (
        (MESSAGES, of_messages, (Text("[Tool Error]"), RED)),
        (RESPONSES, {"input": [user("q"), called, output]}, (RED,)),
        (CHAT, of_chat, (RED,)),
    ):
        _, _, asked = ask(path, {**CALLS[path], **changed})
        assert asked["messages"][-1] == {"role": "tool", "content": content}


def _file(width: int, form: str = "PNG") -> str:
    written = io.BytesIO()
    pil.new("1", (width, width)).save(written, form)
    return base64.b64encode(written.getvalue()).decode()


HOSTILE = {
    "a bomb": _file(20_000),
    "another format": _file(4, "BMP"),
    "no image": base64.b64encode(b"%!PS " * 99).decode(),
    "no base64": "iVBORw0KGgo\ud800\u0000<script>",
    "a cut one": RED.png[:48],
    "nothing": "",
}


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_image_is_refused_in_one_sentence_and_the_endpoint_goes_on(ask: Ask, path: str, what: str) -> None:
    status, text, asked = ask(path, with_parts(path, red_part(path, HOSTILE[what])))
    sentence = json.loads(text)["error"]["message"]
    assert (status, asked) == (400, {"refused": sentence})
    assert sentence.startswith("an image ")
    assert len(sentence) < 300
    assert ask(path, with_parts(path, red_part(path)))[0] == 200


@pytest.mark.parametrize("head", ["file:///etc/passwd", "data:image/png,", "DATA;base64,", "/etc/passwd;base64,"])
def test_what_is_no_data_url_is_not_read(ask: Ask, head: str) -> None:
    status, text, _ = ask(CHAT, with_parts(CHAT, red_part(CHAT, head=head)))
    assert (status, "must be a data URL in base64, since nothing is fetched" in text) == (400, True)


def test_an_image_that_is_sent_again_is_the_same_object(ask: Ask) -> None:
    first, again = (ask(CHAT, with_parts(CHAT, red_part(CHAT)))[2]["messages"][-1]["content"][1] for _ in range(2))
    assert first is again


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
REFUSED = [
    (CHAT, {"n": 2}, "n of a call must be 1, got 2; call several times."),
    (CHAT, {"logit_bias": {"1": 1}}, "logit_bias of a call must be left out"),
    (CHAT, {"response_format": {"type": "grammar"}}, "response_format of a call must be of the type text or json_obj"),
    (
        CHAT,
        {"messages": [user([{"type": "input_audio", "input_audio": {"data": "x"}}])]},
        "messages[0].content[0] of a call must be of the type text or thinking or reasoning or refusal or image_url",
    ),
    (CHAT, {"messages": [user([IMAGE])]}, "since nothing is fetched, got 'https://example.org/x.png'; send"),
    (CHAT, {"messages": [user([{"type": "text", "text": "q", "image": "x"}])]}, "messages[0].content[0].image of"),
    (CHAT, {"messages": [{"role": "user", "content": "q", "audio": {"id": "x"}}]}, "messages[0].audio of a call must"),
    (CHAT, {"messages": []}, "messages of a call must be of a length at least 1"),
    (
        CHAT,
        {"tools": [{"type": "custom", "custom": {}}]},
        "tools[0] of a call must be of the type function, got 'cust",
    ),
    (
        CHAT,
        {"functions": [{"name": "look"}]},
        "functions of a call must be left out, got [{'name': 'look'}]; use tools.",
    ),
    (CHAT, {"function_call": "auto"}, "function_call of a call must be left out"),
    (CHAT, {"guided_json": {}}, "guided_json of a call must be left out, got {}; use response_format."),
    (CHAT, {"structured_outputs": {"regex": "a"}}, "structured_outputs of a call must be left out"),
    (CHAT, {"top_logprobs": 5}, "top_logprobs of a call must be 0, got 5; leave it out, since only sampled tokens"),
    (CHAT, {"modalities": ["audio"]}, "modalities[0] of a call must be text"),
    (CHAT, {"max_tokens": 0}, "max_tokens of a call must be at least 1"),
    (CHAT, {"continue_final_message": True}, "continue_final_message of a call must be left out"),
    (RESPONSES, {"previous_response_id": "r"}, "got 'r'; send the whole conversation with each call."),
    (RESPONSES, {"conversation": "c"}, "conversation of a call must be left out"),
    (RESPONSES, {"background": True}, "background of a call must be False, got True"),
    (RESPONSES, {"truncation": "auto"}, "truncation of a call must be disabled, got 'auto'; shorten the input"),
    (
        RESPONSES,
        {"text": {"format": {"type": "regex"}}},
        "text.format of a call must be of the type text or json_object",
    ),
    (RESPONSES, {"tools": [{"type": "web_search"}]}, "tools[0] of a call must be of the type function, got 'web_se"),
    (RESPONSES, {"tools": [{"type": "file_search"}]}, "of the type function, got 'file_search'"),
    (
        RESPONSES,
        {"include": ["file_search_call.results"]},
        "include[0] of a call must be message.output_text.logprobs",
    ),
    (
        RESPONSES,
        {"input": [user([{"type": "input_file", "file_id": "x"}])]},
        "input[0].content[0] of a call must be of the type input_text or output_text or text or refusal or input_im",
    ),
    (RESPONSES, {"input": [user([{"type": "input_image", "file_id": "x"}])]}, "input[0].content[0].file_id of a call"),
    (
        RESPONSES,
        {"input": [{"type": "computer_call"}]},
        "input[0] of a call must be of the type message or function_call or function_call_output or reasoning, got",
    ),
    (
        RESPONSES,
        {"top_logprobs": 2},
        "top_logprobs of a call must be 0, got 2; leave it out, since only",
    ),
    (MESSAGES, {"top_logprobs": 0}, "top_logprobs of a call must be left out, got 0"),
    (MESSAGES, {"messages": "q"}, "messages of a call must be a list, got 'q'"),
    (MESSAGES, {"mcp_servers": [{}]}, "mcp_servers of a call must be left out"),
    (MESSAGES, {"output_config": {"format": {"type": "xml"}}}, "output_config.format of a call must be of the type"),
    (
        MESSAGES,
        {"tools": [{"type": "web_search_1", "name": "w"}]},
        "tools[0] of a call must be of the type custom, got",
    ),
    (
        MESSAGES,
        {"messages": [user([{"type": "document", "source": {}}])]},
        "messages[0].content[0] of a call must be of the type text or image or thinking or tool_use or tool_result",
    ),
    (
        MESSAGES,
        {"messages": [user([{"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}])]},
        "source of a call must be of the type base64, got 'url'; send the image itself in base64, since nothing is",
    ),
    (
        CHAT,
        {"messages": [user("q"), {"role": "assistant", "content": [red_part(CHAT)]}, user("q")]},
        "an assistant's message must be text, got an image in message 2; remove it.",
    ),
    (
        MESSAGES,
        {"messages": [user("q"), {"role": "assistant", "content": "{"}]},
        "the last message of a call must be the user's, got the assistant's, which training cannot continue; ask for",
    ),
    ("/v1/embeddings", {}, "a call must be one of chat completions, responses"),
    ("/v1/messages/batches", {}, "got POST '/v1/messages/batches'; call one."),
]


@pytest.mark.parametrize(("path", "changed", "told"), REFUSED)
def test_what_cannot_be_trained_on_is_refused_in_one_sentence_of_the_dialect(
    ask: Ask, path: str, changed: dict[str, Any], told: str
) -> None:
    anthropic = {"anthropic-version": "2023-06-01"} if path.startswith(MESSAGES) else {}
    status, text, asked = ask(path, {**CALLS.get(path, CALLS[CHAT]), **changed}, **anthropic)
    body = json.loads(text)
    assert status == (400 if path in CALLS else 404)
    assert told in body["error"]["message"]
    assert asked == {"refused": body["error"]["message"]}
    if anthropic:
        assert (body["type"], body["error"].keys()) == ("error", {"type", "message"})
        assert body["error"]["type"] == ("invalid_request_error" if status == 400 else "not_found_error")
    else:
        assert (body.keys(), body["error"].keys()) == ({"error"}, {"message", "type", "param", "code"})
        assert body["error"]["param"] in (*changed, None)


_WORDS = ["type", "role", "content", "text", "function", "name", "arguments", "input", "tool_use", "tool_result", "id"]
_WORDS += ["message", "function_call", "function_call_output", "output", "user", "assistant", "custom", "tool_calls"]
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from([*_WORDS, ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=4),
    max_leaves=12,
)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_body_of_any_values_is_a_call_or_is_refused(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([*CALLS]))
    dialect = dialect_of(path, {})
    lists = ["messages", "input", "tools", "system", "instructions", "tool_choice", "stop", "text"]
    names = data.draw(
        st.lists(st.sampled_from([one for one in lists if one in dialect.shape]), min_size=1, max_size=3)
    )
    refusal = None
    try:
        asked = canonical_call(read_call(dialect, {**CALLS[path], **{name: data.draw(_VALUES) for name in names}})[0])
    except RefusedCallError as error:
        refusal = error
    if refusal is None:
        assert all(isinstance(message["content"], str) for message in asked["messages"])
        json.dumps(asked)
    else:
        assert 10 < len(str(refusal)) < 600
        json.dumps(dialect.error(refusal))


THOUGHTS = {
    CHAT: ("messages", [{"role": "assistant", "content": "a", "reasoning_content": "t"}]),
    RESPONSES: (
        "input",
        [
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "a"}]},
        ],
    ),
    MESSAGES: (
        "messages",
        [
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "a"}],
            }
        ],
    ),
}


@pytest.mark.parametrize("path", CALLS)
def test_thoughts_that_a_program_sends_back_are_the_templates(ask: Ask, path: str) -> None:
    name, said = THOUGHTS[path]
    head = {name: value for name, value in CALLS[path].items() if name not in ("instructions", "system")}
    asked = ask(path, {**head, name: [user("q"), *said, user("r")]})[2]
    answer = {"role": "assistant", "content": "a", "reasoning_content": "t"}
    assert asked["messages"] == [user("q"), answer, user("r")]
    assert shown_message(answer) == answer


TWO = [("x", "one"), ("y", "two")]
RESULTS = {
    CHAT: (
        "messages",
        [
            {
                "role": "assistant",
                "tool_calls": [{"id": id_, "function": {"name": name, "arguments": "{}"}} for id_, name in TWO],
            },
            *({"role": "tool", "tool_call_id": id_, "content": name} for id_, name in TWO[::-1]),
        ],
    ),
    RESPONSES: (
        "input",
        [
            *({"type": "function_call", "call_id": id_, "name": name, "arguments": "{}"} for id_, name in TWO),
            *({"type": "function_call_output", "call_id": id_, "output": name} for id_, name in TWO[::-1]),
        ],
    ),
    MESSAGES: (
        "messages",
        [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": id_, "name": name, "input": {}} for id_, name in TWO],
            },
            user([{"type": "tool_result", "tool_use_id": id_, "content": name} for id_, name in TWO[::-1]]),
        ],
    ),
}


@pytest.mark.parametrize("path", CALLS)
def test_results_find_their_calls_by_id(ask: Ask, path: str) -> None:
    name, said = RESULTS[path]
    asked = ask(path, {**CALLS[path], name: [user("q"), *said]})[2]
    shown = as_served([shown_message(message) for message in asked["messages"]])
    ids = {call["id"]: call["function"]["name"] for message in shown for call in message.get("tool_calls", ())}
    results = [message for message in shown if message["role"] == "tool"]
    assert [(one["content"], one["name"], ids[one["tool_call_id"]]) for one in results] == [
        ("two", "two", "two"),
        ("one", "one", "one"),
    ]
    foreign = json.loads(
        json.dumps(said).replace('"y", "output"', '"z", "output"').replace('id": "y", "con', 'id": "z", "con')
    )
    status, text, _ = ask(path, {**CALLS[path], name: [user("q"), *foreign]})
    assert (status, "must have the id of a call of the turn before it" in text) == (400, True)


def test_results_without_ids_find_their_calls_by_name_or_place() -> None:
    def places(*results: dict[str, Any]) -> list[Any]:
        calls = [{"function": {"name": name}} for name in ("one", "two", "two")]
        turn = {"role": "assistant", "tool_calls": calls}
        shown = canonical_messages([turn, *({"role": "tool", "content": "", **result} for result in results)])
        return [one.get("answers", "next") for one in shown[1:]]

    assert places({}, {}, {}) == ["next"] * 3
    assert places({"name": "two"}, {"tool_name": "two"}, {"name": "one"}) == [1, 2, "next"]
    assert places({"name": "two"}, {}, {}) == [1, "next", "next"]
    assert places({"tool_call_id": "x", "name": "two"}, {"name": "other"}) == [1, "next"]


def test_what_is_no_call_is_refused(ask: Ask) -> None:
    for body in ("no JSON", "[]", "[" * 100_000):
        assert ask(CHAT, body)[0] == 400


def test_tokens_are_counted_by_the_chat_that_renders_contexts(endpoint: Endpoint, ask: Ask) -> None:
    keys = endpoint.open(lambda kind, what: None)
    body = {name: value for name, value in CALLS[MESSAGES].items() if name != "max_tokens"}

    def counted() -> int:
        status, text = send(endpoint, f"{MESSAGES}/count_tokens", body, {"x-api-key": keys[0]})
        assert status == 200
        return int(json.loads(text)["input_tokens"])

    assert counted() == 15  # by their length, where no tokenizer is known
    chat = Chat(tokenizer_of([string.printable], tools=True))
    endpoint.count_with(chat, 100)
    asked = ask(CHAT, CALLS[CHAT])[2]
    assert counted() == len(chat.context(asked["messages"], tools=asked["tools"]))
    assert json.loads(send(endpoint, "/v1/models", "", {"x-api-key": keys[0]}, "GET")[1])["data"] == [
        {
            "id": "policy",
            "display_name": "policy",
            "object": "model",
            "type": "model",
            "created": 0,
            "created_at": "1970-01-01T00:00:00Z",
            "owned_by": "hf-credit",
            "max_model_len": 100,
        }
    ]
    status, text = send(endpoint, "/v1/models/gpt", "", {"x-api-key": keys[0]}, "GET")
    assert (status, json.loads(text)["error"]["code"]) == (404, "model_not_found")
    endpoint.count_with(None, None)
    endpoint.close(keys)


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_context_too_long_is_the_error_of_the_dialect(ask: Ask, path: str, stream: bool) -> None:
    status, text, _ = ask(path, {**CALLS[path], "stream": stream}, {"too_long": [120, 100]})
    error = json.loads(text)["error"]
    if path == MESSAGES:
        told = {"type": "invalid_request_error", "message": "prompt is too long: 120 tokens > 100 maximum"}
        assert (status, error) == (400, told)
    else:
        assert (status, error["code"]) == (400, "context_length_exceeded")
        assert error["message"].startswith("This model's maximum context length is 100 tokens. However, your messages")


@pytest.mark.parametrize(
    ("path", "more", "count"),
    [
        (
            CHAT,
            {"temperature": 0.1, "top_p": 0.5, "seed": 1, "reasoning_effort": "low", "user": "me", "stop": None},
            4,
        ),
        (CHAT, {"tool_choice": "required"}, 1),
        (CHAT, {"tool_choice": "auto", "parallel_tool_calls": False, "logprobs": True, "top_logprobs": 0}, 0),
        (CHAT, {"messages": [{"role": "user", "name": "ann", "content": "q"}]}, 1),
        (CHAT, {"tools": [{"type": "function", "function": {"name": "look", "strict": True}}]}, 1),
        (RESPONSES, {"reasoning": {"effort": "low"}, "text": {"verbosity": "low"}, "store": False}, 2),
        (MESSAGES, {"thinking": {"type": "enabled"}, "top_k": 5, "metadata": {"user_id": "me"}}, 2),
    ],
    ids=str,
)
def test_parameters_without_effect_are_counted(path: str, more: dict[str, Any], count: int) -> None:
    assert read_call(dialect_of(path, {}), {**CALLS[path], **more})[1] == count


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("stream", [False, True])
def test_numbers_that_are_not_finite_reach_no_program(ask: Ask, path: str, stream: bool) -> None:
    text = ask(path, {**CALLS[path], "stream": stream}, {**LOOKED, "calls": [["look", '{"at": 1e999}']]})[1]
    assert "Infinity" not in text
    assert "1e999" in text


def test_text_before_a_call_is_kept_in_every_dialect(ask: Ask) -> None:
    for path, body in CALLS.items():
        for stream in (False, True):
            text = ask(path, {**body, "stream": stream}, {**LOOKED, "content": "Let me look."})[1]
            assert "Let me look." in text
            assert "call_3_0" in text


def test_a_reply_comes_back_as_it_was_sent_in_every_dialect() -> None:
    for calls in ([], [["look", '{"at": 1}']], [["look", '{"at": 1e999}'], ["look", "5"]]):
        record = {**SAID, "calls": calls}
        said = completion(record, "0", "m")
        sent = {path: dialect_of(path, {}).reply(said, CALLS[path]) for path in CALLS}
        histories = {
            CHAT: {"messages": [user("q"), sent[CHAT]["choices"][0]["message"], user("on")]},
            RESPONSES: {"input": [user("q"), *sent[RESPONSES]["output"], user("on")]},
            MESSAGES: {
                "messages": [user("q"), {"role": "assistant", "content": sent[MESSAGES]["content"]}, user("on")]
            },
        }
        for path, history in histories.items():
            call, _ = read_call(dialect_of(path, {}), {"model": "m", **history})
            _, message, _ = canonical_call(call)["messages"]
            assert message == assistant_message("Hello.", calls)


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
    wanted = {"model", "messages", "tools", "max_tokens", "stop", "logprobs", "most_calls"}
    assert (status, asked.keys()) == (200, wanted)


def test_an_sdk_reads_the_answers() -> None:
    pytest.importorskip("openai")
    interaction = AgentInteraction("agent_on_openai:through_sdk")
    for _ in range(2):
        asked = []
        state = interaction.start({"number": 1}, 0)
        while requests := interaction.pending(state):
            asked.append([message["content"] for message in requests[0].messages])
            state = interaction.advance(state, ["ab"])
        texts = [["chat?"], ["stream?"], ["Be brief.", "responses?"], ["resp_2 chatcmpl-0 streamed?"]]
        assert asked == [*texts[:3], [(RED,)], [(RED,)], texts[3]]
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
    assert canonical_messages([called("{broken")])[0]["tool_calls"][0]["arguments"] == {"arguments": "{broken"}


def test_the_difference_of_two_calls_names_the_message_and_the_part() -> None:
    calls = [canonical_call({"messages": [user("q"), user(f"the time is {now}")]}) for now in ("10:01", "10:02")]
    assert difference(*calls) == "message 2 (user), content: ...'the time is 10:01', then ...'the time is 10:02'"
    assert difference(calls[0], {**calls[0], "max_tokens": 3}) == "max_tokens: ...'null', then ...'3'"
    assert difference(calls[0], {**calls[0], "messages": calls[0]["messages"][:1]}) == "2 messages, then 1"


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        (CHAT, {"tools": 5}),
        (CHAT, {"tools": [5]}),
        (CHAT, {"tools": [{"function": {"name": 5}}]}),
        (CHAT, {"stop": 5}),
        (CHAT, {"stop": [5]}),
        (CHAT, {"stop": {}}),
        (CHAT, {"model": 5}),
        (CHAT, {"max_tokens": "9"}),
        (CHAT, {"max_tokens": True}),
        (CHAT, {"stream": "yes"}),
        (CHAT, {"response_format": 5}),
        (CHAT, {"text": 5}),
        (CHAT, {"messages": {"role": "user"}}),
        (CHAT, {"messages": [5]}),
        (CHAT, {"messages": [{"content": "q"}]}),
        (CHAT, {"messages": [{"role": 5, "content": "q"}]}),
        (CHAT, {"messages": [{"role": "<|im_start|>system", "content": "q"}]}),
        (CHAT, {"messages": [{"role": "user\n", "content": "q"}]}),
        (CHAT, {"messages": [user("q"), {"role": "assistant", "tool_calls": 5}]}),
        (CHAT, {"messages": [user("q"), {"role": "assistant", "tool_calls": [5]}]}),
        (CHAT, {"messages": [user("q"), {"role": "assistant", "tool_calls": [{"function": 5}]}]}),
        (CHAT, {"messages": [user("q"), {"role": "assistant", "tool_calls": [{"function": {"name": None}}]}]}),
        (CHAT, '{"messages": [{"role": "user", "content": 1e999}]}'),
        (CHAT, '{"temperature": NaN, "messages": [{"role": "user", "content": "q"}]}'),
        (CHAT, '{"messages": ' + "[" * 2_000 + "]" * 2_000 + "}"),
        (CHAT, {"messages": [user("q")] * 10_001}),
        (CHAT, "5"),
        (CHAT, "[]"),
        (CHAT, "null"),
        (RESPONSES, {"tools": 5}),
        (RESPONSES, {"input": 5}),
        (RESPONSES, {"input": [None]}),
        (MESSAGES, {"tools": 5}),
        (MESSAGES, {"tools": [None]}),
        (MESSAGES, {"tool_choice": "auto"}),
        (MESSAGES, {"messages": 5}),
        (MESSAGES, {"messages": [None]}),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_body_of_another_type_is_refused_in_one_sentence(ask: Ask, path: str, changed: Any) -> None:
    status, text, told = ask(path, changed if isinstance(changed, str) else {**CALLS[path], **changed})
    assert status == 400
    assert json.loads(text)["error"]["message"] == told["refused"]
    assert "Traceback" not in text
    assert len(told["refused"]) < 600


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e999", "1e308", '"5"', "null", "[]", "{}"], ids=str
)
def test_a_reward_that_is_no_number_is_refused_and_the_run_is_told(endpoint: Endpoint, value: str) -> None:
    told: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    keys = endpoint.open(lambda kind, what: told.put((kind, what)))
    status, text = send(endpoint, "/v1/reward", f'{{"value": {value}}}', {"authorization": f"Bearer {keys[1]}"})
    kind, sentence = told.get(timeout=60)
    endpoint.close(keys)
    assert (status, kind) == (400, "failed")
    assert json.loads(text)["error"]["message"] == sentence


@pytest.mark.parametrize("body", ["", "5", "[]", "{}", '{"value": 1'])
def test_a_reward_without_a_value_is_refused(endpoint: Endpoint, body: str) -> None:
    told: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    keys = endpoint.open(lambda kind, what: told.put((kind, what)))
    assert send(endpoint, "/v1/reward", body, {"authorization": f"Bearer {keys[1]}"})[0] == 400
    assert told.get(timeout=60)[0] == "failed"
    endpoint.close(keys)


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("stream", [False, True])
def test_half_of_a_surrogate_pair_is_the_replacement_character(ask: Ask, path: str, stream: bool) -> None:
    broken = {**LOOKED, "content": "a\ud83d", "calls": [["look", '{"at": "\ud83d"}']]}
    status, text, _ = ask(path, {**CALLS[path], "stream": stream}, broken)
    assert status == 200
    assert "\\ud83d" not in text
    assert "\ufffd" in text or "\\ufffd" in text


def test_half_of_a_surrogate_pair_in_a_call_is_the_replacement_character(ask: Ask) -> None:
    body = '{"model": "m", "messages": [{"role": "user", "content": "a\\ud83d"}]}'
    assert ask(CHAT, body)[2]["messages"] == [user("a\ufffd")]
    both = '{"model": "m", "messages": [{"role": "user", "content": "a\\ud83d\\ude00"}]}'
    assert ask(CHAT, both)[2]["messages"] == [user("a\U0001f600")]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (None, {}),
        ("null", {}),
        ("", {}),
        ("5", {"arguments": 5}),
        ("[1]", {"arguments": [1]}),
        ("no JSON", {"arguments": "no JSON"}),
        ('{"a": 1e999}', {"arguments": '{"a": 1e999}'}),
        ({"a": 1}, {"a": 1}),
    ],
    ids=str,
)
def test_templates_see_arguments_by_name_whatever_the_history_has(arguments: Any, shown: Any) -> None:
    call = {"function": {"name": "look", "arguments": arguments}}
    (message,) = canonical_messages([{"role": "assistant", "content": "", "tool_calls": [call]}])
    assert shown_message(message)["tool_calls"][0]["function"] == {"name": "look", "arguments": shown}


def test_two_lengths_are_refused_and_nothing_after_them_is_read(endpoint: Endpoint, ask: Ask) -> None:
    host, _, port = endpoint.base_url.removeprefix("http://").removesuffix("/v1").partition(":")
    keys = endpoint.open(lambda kind, what: None)
    body = json.dumps(CALLS[CHAT])
    request = (
        f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {keys[0]}\r\nContent-Length: {len(body)}\r\n"
        f"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request.encode())
        answered = b""
        while part := connection.recv(2**16):
            answered += part
    endpoint.close(keys)
    assert answered.count(b"HTTP/1.1") == 1
    assert b" 400 " in answered.splitlines()[0]


def test_silent_connections_are_closed_and_the_oldest_give_way_where_there_are_too_many(
    endpoint: Endpoint, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = endpoint.base_url.removeprefix("http://").removesuffix("/v1").partition(":")
    monkeypatch.setattr("hf_credit.agents.endpoint._Connection.most", 3)
    silent = [socket.create_connection((host, int(port)), timeout=60) for _ in range(9)]
    assert ask(CHAT, CALLS[CHAT])[0] == 200  # though they would stay for long
    for one in silent[:6]:
        with suppress(ConnectionResetError):
            assert one.recv(1) == b""
    monkeypatch.setattr("hf_credit.agents.endpoint._SILENT_SECONDS", 0.05)
    silent += [socket.create_connection((host, int(port)), timeout=60) for _ in range(9)]
    for one in silent:
        with suppress(ConnectionResetError):
            assert one.recv(1) == b""
        one.close()
    assert ask(CHAT, CALLS[CHAT])[0] == 200
