"""Programs on the SDK of Anthropic that read more of a server than the text of a reply."""

import anthropic

from hf_credit.agents import agent

LOOK = {
    "name": "look",
    "description": "Looks.",
    "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
}


def user(content):
    return {"role": "user", "content": content}


def asks(messages, **more):
    return anthropic.Anthropic().messages.create(model="policy", max_tokens=200, messages=messages, **more)


def streams():
    """Streams a call with text before it, and answers it."""
    with anthropic.Anthropic().messages.stream(
        model="policy", max_tokens=200, messages=[user("look")], tools=[LOOK]
    ) as stream:
        seen = "".join(stream.text_stream)
        reply = stream.get_final_message()
    assert [block.type for block in reply.content] == ["text", "tool_use"]
    assert (seen, reply.stop_reason) == (reply.content[0].text, "tool_use")
    assert reply.usage.output_tokens > 10
    result = {"type": "tool_result", "tool_use_id": reply.content[1].id, "content": [{"type": "text", "text": "tea"}]}
    asks([user("look"), {"role": "assistant", "content": reply.content}, user([result])], tools=[LOOK])


def counts():
    """Counts the tokens of a call before it makes it."""
    counted = anthropic.Anthropic().messages.count_tokens(model="policy", messages=[user("look")]).input_tokens
    assert asks([user("look")]).usage.input_tokens == counted


def compacts():
    messages = [user("go")]
    for _ in range(4):
        try:
            messages += [{"role": "assistant", "content": asks(messages).content}, user("more, " * 40)]
        except anthropic.BadRequestError as error:
            if not error.body["error"]["message"].startswith("prompt is too long: "):
                raise
            messages = [user("summary")]


def falls_back():
    for refused in ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {"container": "c"}):
        try:
            asks([user("look")], **refused)
        except anthropic.BadRequestError as error:
            if error.body["error"]["type"] != "invalid_request_error":
                raise
    try:
        asks([user("json"), {"role": "assistant", "content": "{"}])
    except anthropic.BadRequestError:
        (model,) = anthropic.Anthropic().models.list()
        assert asks([user("json")]).model == model.id


@agent(columns=("what",), max_calls=8)
def run(task, model):
    globals()[task["what"]]()
    return 1.0
