"""Contexts only grow by appending, for any template and any reply."""

from __future__ import annotations

import copy
import re
import resource
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AddedToken

from hf_credit.environments.actions import marked, write_call
from hf_credit.policies.micro import RESPONSE_TEMPLATE
from hf_credit.replies import spoken
from hf_credit.rollouts import Chat, Request, rendering
from hf_credit.rollouts.conversations import Conversation
from hf_credit.rollouts.reply_parts import read_tokens
from hf_credit.rollouts.templates import SAID, ChatTemplateError

# Closes a turn with the end token, which the model writes itself, and a line break, which it does not; takes the
# thoughts out of earlier replies, and puts an empty thought before a reply that no user message follows.
THINKING = (
    "{%- set ns = namespace(last=0) -%}"
    "{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}"
    "{%- for m in messages -%}"
    "{%- set content = m.content.split('</think>')[-1] if m.role == 'assistant' else m.content -%}"
    "{%- if m.role == 'assistant' and loop.index0 > ns.last -%}"
    "{{- '<|assistant|><think></think>' + content + '<|end|>\n' -}}"
    "{%- else -%}{{- '<|' + m.role + '|>' + content + '<|end|>\n' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}"
    "{%- if enable_thinking is defined and not enable_thinking -%}{{- '<think></think>' -}}{%- endif -%}{%- endif -%}"
)
PLAIN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def with_template(tokenizer, template):
    other = copy.deepcopy(tokenizer)
    other.chat_template = template
    return other


def encode(chat, text):
    return tuple(chat.tokenizer(text, add_special_tokens=False)["input_ids"])


def decode(chat, ids):
    return chat.tokenizer.decode(list(ids), skip_special_tokens=False)


def tokens(chat, *names):
    return tuple(chat.tokenizer.convert_tokens_to_ids(list(names)))


def replied(chat, messages, reply):
    """The conversation after a reply in tokens, and its text."""
    (text,) = chat.texts([reply])
    return Conversation(messages=(*messages, assistant(text)), ids=chat.context(messages) + tuple(reply)), text


def test_a_new_conversation_is_rendered_by_the_template(chat):
    context = chat.context([user("ab"), assistant("c"), user("d")])
    expected = tokens(
        chat, "<|user|>", "ab", "<|end|>", "<|assistant|>", "c", "<|end|>", "<|user|>", "d", "<|end|>", "<|assistant|>"
    )
    assert context == expected


def test_a_reply_with_an_end_token_is_followed_by_the_next_turn(chat):
    conversation, text = replied(chat, [user("x")], tokens(chat, "y", "<|end|>"))
    context = chat.context([user("x"), assistant(text), user("z")], conversation)
    assert decode(chat, context) == "<|user|>x<|end|><|assistant|>y<|end|><|user|>z<|end|><|assistant|>"


def test_the_template_ends_a_truncated_reply(chat):
    conversation, text = replied(chat, [user("x")], tokens(chat, "y"))
    context = chat.context([user("x"), assistant(text), user("z")], conversation)
    assert decode(chat, context) == "<|user|>x<|end|><|assistant|>y<|end|><|user|>z<|end|><|assistant|>"


def test_the_template_ends_an_empty_reply(chat):
    conversation, text = replied(chat, [user("x")], ())
    assert text == ""
    context = chat.context([user("x"), assistant(text), user("z")], conversation)
    assert decode(chat, context) == "<|user|>x<|end|><|assistant|><|end|><|user|>z<|end|><|assistant|>"


def test_the_tokens_of_a_reply_are_not_encoded_again(chat):
    reply = tokens(chat, "a", "b", "<|end|>")
    assert encode(chat, "ab") == tokens(chat, "ab")
    conversation, text = replied(chat, [user("x")], reply)
    context = chat.context([user("x"), assistant(text), user("z")], conversation)
    assert context[: len(conversation.ids)] == conversation.ids
    assert context != chat.context([user("x"), assistant(text), user("z")])


@pytest.mark.parametrize("template", [None, THINKING, PLAIN])
@given(st.lists(st.lists(st.integers(0, 120), max_size=6), min_size=1, max_size=4))
def test_the_next_context_begins_with_the_last_context_and_reply(tokenizer, template, replies):
    chat = Chat(tokenizer if template is None else with_template(tokenizer, template))
    closing = chat.context([user("q")])
    tail = chat._added_text([SAID, user("q")])
    messages, conversation = [user("q")], None
    for reply in replies:
        context = chat.context(messages, conversation)
        if conversation is None:
            assert context == closing
        else:
            assert context[: len(conversation.ids)] == conversation.ids
            added = context[len(conversation.ids) :]
            closed_itself = conversation.ids[-1] == encode(chat, tail)[0]
            assert added == encode(chat, tail)[int(closed_itself) :]
        (text,) = chat.texts([reply])
        conversation = Conversation(messages=(*messages, assistant(text)), ids=context + tuple(reply))
        messages = [*conversation.messages, user("q")]


def test_a_conversation_that_does_not_continue_its_thread_is_rendered_again(chat):
    conversation, _ = replied(chat, [user("x")], tokens(chat, "a", "b", "<|end|>"))
    for messages in (
        [user("x")],
        [user("x"), assistant("ab")],
        [user("x"), assistant("other"), user("z")],
        [user("other"), assistant("ab"), user("z")],
        [{"role": "system", "content": "s"}, user("x"), assistant("ab"), user("z")],
    ):
        assert chat.context(messages, conversation) == chat.context(messages)


def test_several_messages_can_be_added_at_once(chat):
    conversation, text = replied(chat, [user("x")], tokens(chat, "y", "<|end|>"))
    context = chat.context([user("x"), assistant(text), user("1"), user("2")], conversation)
    assert decode(chat, context[len(conversation.ids) :]) == "<|user|>1<|end|><|user|>2<|end|><|assistant|>"


def test_thoughts_stay_in_the_context_unchanged(tokenizer):
    chat = Chat(with_template(tokenizer, THINKING))
    reply = encode(chat, "<think>abc</think>y<|end|>")
    conversation, text = replied(chat, [user("x")], reply)
    context = chat.context([user("x"), assistant(text), user("z")], conversation)
    assert decode(chat, context) == (
        "<|user|>x<|end|>\n<|assistant|><think>abc</think>y<|end|>\n<|user|>z<|end|>\n<|assistant|>"
    )
    assert "abc" not in decode(chat, chat.context([user("x"), assistant(text), user("z")]))


def test_no_thought_is_added_to_an_earlier_reply(tokenizer):
    chat = Chat(with_template(tokenizer, THINKING), {"enable_thinking": False})
    conversation, text = replied(chat, [user("x")], encode(chat, "y<|end|>"))
    context = chat.context([user("x"), assistant(text), user("z")], conversation)
    assert decode(chat, context) == (
        "<|user|>x<|end|>\n<|assistant|><think></think>y<|end|>\n<|user|>z<|end|>\n<|assistant|><think></think>"
    )


def test_a_template_without_end_tokens_continues_after_the_reply(tokenizer):
    chat = Chat(with_template(tokenizer, PLAIN))
    for reply, closed in (("y", "y\n\n"), ("y\n\n", "y\n\n"), ("y\n", "y\n\n\n"), ("y<|end|>", "y<|end|>\n\n")):
        conversation, text = replied(chat, [user("x")], encode(chat, reply))
        context = chat.context([user("x"), assistant(text), user("z")], conversation)
        assert decode(chat, context) == f"user: x\n\nassistant: {closed}user: z\n\nassistant: "


def test_a_template_that_trims_replies_does_not_change_their_tokens(tokenizer):
    template = tokenizer.chat_template.replace("message.content", "message.content | trim")
    chat = Chat(with_template(tokenizer, template))
    conversation, text = replied(chat, [user("x")], encode(chat, "  y  <|end|>"))
    context = chat.context([user("x"), assistant(text), user("z")], conversation)
    assert decode(chat, context) == "<|user|>x<|end|><|assistant|>  y  <|end|><|user|>z<|end|><|assistant|>"


def test_an_observation_may_contain_the_placeholder_of_a_reply(chat):
    marker = "\ue000reply\ue001"
    conversation, text = replied(chat, [user("x")], encode(chat, "y<|end|>"))
    request = Request(role="agent", messages=(user("x"), assistant(text), user(f"1{marker}2")))
    for context in (chat.context(request.messages, conversation), *chat.contexts([(request, conversation)] * 3)):
        assert decode(chat, context[len(conversation.ids) :]) == "<|user|>1reply2<|end|><|assistant|>"


def test_template_kwargs_are_passed_to_the_template(tokenizer):
    template = "{{ mood }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    chat = Chat(with_template(tokenizer, template), {"mood": "glad"})
    assert decode(chat, chat.context([user("x")])) == "glad<|user|>x<|end|><|assistant|>"


def test_texts_have_no_special_tokens(chat):
    replies = [tokens(chat, "<|user|>", "a", "b", "<|end|>"), (), tokens(chat, "<|pad|>"), tokens(chat, "\n\n", " 1")]
    assert chat.texts(replies) == ["ab", "", "", "\n\n 1"]


def test_token_ids_beyond_the_vocabulary_have_no_text(chat):
    # A model's embedding is often padded to more rows than its tokenizer has tokens.
    assert chat.texts([[len(chat.tokenizer) + 5, *tokens(chat, "a")]]) == ["a"]


# Refused


def test_a_tokenizer_without_chat_template_is_refused(tokenizer):
    with pytest.raises(
        ValueError, match=r"must have a chat template, got .* without one; set tokenizer\.chat_template"
    ):
        Chat(with_template(tokenizer, None))


def test_a_tokenizer_without_padding_token_is_refused(tokenizer):
    other = copy.deepcopy(tokenizer)
    other.pad_token = None
    with pytest.raises(ValueError, match=r"must have a padding token, got .* without one; set tokenizer\.pad_token"):
        Chat(other)


def test_the_end_token_may_be_the_padding_token(tokenizer):
    other = copy.deepcopy(tokenizer)
    other.pad_token = other.eos_token
    chat = Chat(other)
    conversation, text = replied(chat, [user("x")], tokens(chat, "y", "<|end|>"))
    context = chat.context([user("x"), assistant(text), user("z")], conversation)
    assert decode(chat, context) == "<|user|>x<|end|><|assistant|>y<|end|><|user|>z<|end|><|assistant|>"


@pytest.mark.parametrize(
    "reply",
    ["", "(a reply)", "{{ m.content | upper }}", "{{ m.content[1:] }}", "{{ m.content[:3] }}"],
    ids=["dropped", "replaced", "altered", "beheaded", "shortened"],
)
def test_a_template_that_changes_replies_is_refused(tokenizer, reply):
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}" + reply + "{% else %}{{ m.content }}"
        "{% endif %}<|end|>{% endfor %}<|assistant|>"
    )
    with pytest.raises(ValueError, match=r"must keep earlier replies unchanged, got one of .* that does not; set "):
        Chat(with_template(tokenizer, template))


@pytest.mark.parametrize("today", ["tomorrow", "2026-02-30", 5])
def test_a_date_that_is_none_is_refused(tokenizer, today):
    other = with_template(tokenizer, "{{ strftime_now('%Y') }}" + PLAIN)
    with pytest.raises(ChatTemplateError, match=f"must be a date as 2026-01-31, got {today!r}; correct it"):
        Chat(other, {"today": today})


def test_a_template_writes_its_date_in_any_form(tokenizer):
    time = (
        "{{ strftime_now('%-d %B %Y, %a %H:%M') }}\n{% macro day() %}{{ strftime_now('%j') }}{% endmacro %}{{ day() }}"
    )
    chat = Chat(with_template(tokenizer, time + PLAIN), {"today": "2024-02-29"})
    assert decode(chat, chat.context([user("x")])).startswith("29 February 2024, Thu 00:00\n060user: x")


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize("loop", [ENDLESS, "{{ 9 ** (9 ** 9) }}"], ids=["a loop", "a power"])
def test_a_template_that_does_not_terminate_is_refused(tokenizer, monkeypatch, loop):
    monkeypatch.setattr(rendering, "RENDERING_SECONDS", 0.2)
    with pytest.raises(
        ValueError, match=r"must render within 0\.2 seconds .*, got one of .* that took more than 0\.2 sec"
    ):
        Chat(with_template(tokenizer, loop + PLAIN))


def test_a_template_that_does_not_terminate_in_some_conversations_is_waited_for_once(tokenizer, monkeypatch):
    chat = Chat(with_template(tokenizer, "{% if messages|length == 5 %}" + ENDLESS + "{% endif %}" + PLAIN))
    monkeypatch.setattr(rendering, "RENDERING_SECONDS", 0.2)
    long = [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]
    found = chat.contexts([(Request(role="r", messages=one), None) for one in (long, [user("a")], long)])
    assert all("must render within" in str(one) for one in found)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a' * 2500000000 }}",
        "{% set ns = namespace(a='aaaa') %}{% for i in range(64) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
    ],
    ids=["in one step", "by doubling"],
)
def test_a_template_that_needs_too_much_memory_is_refused(tokenizer, text):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"got one of .* that took more than 1024 MiB; set another"):
        Chat(with_template(tokenizer, text + PLAIN))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_a_conversation_that_needs_too_much_memory_stops_no_other_one(tokenizer):
    text = "{% if messages[0].content == 'a' %}{{ 'a' * 2500000000 }}{% endif %}" + PLAIN
    chat = Chat(with_template(tokenizer, text))
    plain = Chat(with_template(tokenizer, PLAIN))
    found = chat.contexts([(Request(role="r", messages=[user(one)]), None) for one in "bac"])
    assert "took more than" in str(found[1])
    assert [found[0], found[2]] == [plain.context([user(one)]) for one in "bc"]


def test_a_template_has_no_file_and_no_variable(tokenizer, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(ValueError, match=r"must render messages of text, got one of .* that raises"):
        Chat(with_template(tokenizer, "{% include '/etc/passwd' %}" + PLAIN))


def test_templates_in_threads_have_their_limits(tokenizer, monkeypatch):
    monkeypatch.setattr(rendering, "RENDERING_SECONDS", 0.5)
    found = []

    def build():
        with pytest.raises(ValueError, match="must render within") as error:
            Chat(with_template(tokenizer, ENDLESS + PLAIN))
        found.append(error)

    conversation = threading.Thread(target=build)
    conversation.start()
    conversation.join()
    assert len(found) == 1


EXPONENTIAL = "(?:a|a|aa)+(?:x|[0-9])"


@pytest.mark.parametrize(
    ("start", "field"),
    [
        ({"start_anchor": "<|assistant|>"}, {"open_pattern": EXPONENTIAL, "close": "!"}),
        ({"start_anchor": "<|assistant|>"}, {"open": "a", "close_pattern": EXPONENTIAL}),
        ({"start_anchor_pattern": EXPONENTIAL}, {"open": "a"}),
    ],
    ids=["open", "close", "start"],
)
def test_a_pattern_of_a_response_template_that_takes_too_long_is_a_call_that_cannot_be_read(
    tokenizer, monkeypatch, start, field
):
    other = with_template(tokenizer, TOOLS)
    other.response_template = {**start, "fields": {"tool_calls": field, "content": {"close": "<|end|>"}}}
    monkeypatch.setattr(rendering, "PARSING_SECONDS", 0.5)
    ids = other("a" * 60)["input_ids"]
    said = read_tokens(other, "a" * 60, ids, ids, [tool("x")])
    assert [(call.name, call.why) for call in said.made] == [("", "reading it took more than 0.5 seconds")]
    assert said.content == "a" * 60


# Parts, tools and tool calls

TOOLS = (
    "{% for t in tools or [] %}<|system|>{{ t.function.name }}<|end|>{% endfor %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def taught(tokenizer):
    other = with_template(tokenizer, TOOLS)
    other.response_template = RESPONSE_TEMPLATE
    return Chat(other)


def test_text_parts_are_joined(chat):
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    assert chat.context([user(parts)]) == chat.context([user("ab\nc")])
    assert chat.context([user("x"), assistant(None), user("y")]) == chat.context([user("x"), assistant(""), user("y")])
    with pytest.raises(ValueError, match="a message must be text or parts of text"):
        chat.context([user([{"type": "image_url"}])])


def test_each_request_has_its_tools(taught):
    requests = [Request(role="r", messages=[user("x")], tools=tools) for tools in ((), [tool("ab")], [tool("c")])]
    shown = [decode(taught, context) for context in taught.contexts([(one, None) for one in requests])]
    assert shown == [
        f"{head}<|user|>x<|end|><|assistant|>" for head in ("", "<|system|>ab<|end|>", "<|system|>c<|end|>")
    ]
    assert taught.telling_of([tool("ab")]) is taught.telling_of([tool("ab")])


def test_a_conversation_is_continued_only_with_equal_tools(taught):
    first = Request(role="r", messages=[user("x")], tools=[tool("ab")])
    (context,) = taught.contexts([(first, None)])
    conversation = Conversation.after(first, "ab", context + tokens(taught, "a", "b", "<|end|>"))
    messages = [*conversation.messages, user("z")]
    same, other = (Request(role="r", messages=messages, tools=[tool(name)]) for name in ("ab", "c"))
    (kept,), (anew,) = taught.contexts([(same, conversation)]), taught.contexts([(other, conversation)])
    assert kept[: len(conversation.ids)] == conversation.ids
    assert anew == taught.context(messages, None, [tool("c")])


def test_tool_calls_in_messages_have_no_special_tokens(taught):
    call = {"type": "function", "function": {"name": "ab", "arguments": {"x": "<|end|>"}}}
    context = taught.context([user("x"), {**assistant(""), "tool_calls": [call]}, user("y")])
    assert context.count(taught.tokenizer.eos_token_id) == 3
    assert decode(taught, context).count('{"name": "ab", "arguments": {"x": "<|end|>"}}') == 1


def test_tool_calls_are_parsed_only_with_tools(taught):
    said = '<tool_call>{"name": "ab", "arguments": {"x": 1}}</tool_call>'
    ids = (*encode(taught, f"a {said}"), taught.tokenizer.eos_token_id)
    context = taught.context([user("x")], None, [tool("ab")])
    reply = taught.reply(ids, context, [tool("ab")])
    assert (reply, reply.content, reply.calls, reply.ended) == (f"a {said}", "a", (("ab", '{"x": 1}'),), True)
    plain = taught.reply(ids[:-1], context)
    assert (plain.content, plain.calls, plain.ended) == (f"a {said}", (), False)


@pytest.mark.parametrize(
    "said", ["<tool_call>{nothing}</tool_call>", '<tool_call>{"name": 1}</tool_call>', "<tool_call>{"]
)
def test_an_unreadable_tool_call_is_text(taught, said):
    reply = taught.reply(encode(taught, said), taught.context([user("x")]), [tool("ab")])
    assert (reply.content, reply.calls) == (said, ())


def test_without_a_response_template_calls_are_parsed_in_known_formats(tokenizer):
    chat = Chat(with_template(tokenizer, TOOLS))
    reply = chat.reply(encode(chat, '<tool_call>{"name": "ab", "arguments": {}}</tool_call>'), (), [tool("ab")])
    assert (reply.content, reply.calls) == ("", (("ab", "{}"),))


def test_a_response_template_of_another_chat_template_is_refused(tokenizer):
    other = with_template(tokenizer, TOOLS)
    other.response_template = {**RESPONSE_TEMPLATE, "start_anchor": "<|im_start|>assistant"}
    with pytest.raises(ValueError, match=r"must parse replies of the chat template, got '.*' for"):
        Chat(other).telling_of([tool("ab")])


# The end of a reply

CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|stop|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture
def stopping(tokenizer):
    """A chat whose template ends a turn with another token than the tokenizer's end token, as Gemma 3's does."""
    other = with_template(tokenizer, CHATML)
    other.add_tokens([AddedToken("<|stop|>", special=False, normalized=False)])
    return Chat(other)


def test_a_turn_ends_as_the_template_writes_it(stopping):
    stop, end = tokens(stopping, "<|stop|>", "<|end|>")
    assert set(stopping.end_tokens) == {stop, end}
    assert stopping.reply_ids("a") == (*tokens(stopping, "a"), stop)
    assert stopping.reply(stopping.reply_ids("a")).ended
    assert not stopping.reply(stopping.reply_ids("a")[:-1]).ended


def test_a_reply_that_ended_otherwise_is_followed_by_the_templates_own_end(stopping):
    for ending, shown in (("<|stop|>", "y<|stop|>"), ("<|end|>", "y<|end|><|stop|>"), ("y", "yy<|stop|>")):
        conversation, text = replied(stopping, [user("x")], tokens(stopping, "y", ending))
        context = stopping.context([user("x"), assistant(text), user("z")], conversation)
        assert (
            decode(stopping, context) == f"<|user|>x<|stop|>\n<|assistant|>{shown}\n<|user|>z<|stop|>\n<|assistant|>"
        )


def test_the_models_own_end_tokens_end_replies_with_every_tool(tokenizer):
    chat = Chat(with_template(tokenizer, TOOLS))
    taught = chat.telling_of([tool("ab")])
    chat.also_end([None])  # as TRL has of a tokenizer without an end token
    chat.also_end([7])
    assert 7 in taught.end_tokens
    assert 8 in Chat(chat.tokenizer, ends=8).end_tokens


# What a reply's text has

THOUGHTFUL = PLAIN.replace("assistant: {% endif %}", "assistant: <think>\n{% endif %}")


def test_the_text_of_a_reply_begins_with_the_thought_that_its_context_opens(tokenizer):
    chat = Chat(with_template(tokenizer, THOUGHTFUL))
    context = chat.context([user("x")])
    cut = encode(chat, "the box is ab")
    assert chat.texts([cut], [context]) == ["<think>\nthe box is ab"]
    assert spoken(chat.texts([cut], [context])[0]) == ""
    assert spoken(chat.texts([encode(chat, "hm</think>ab")], [context])[0]) == "ab"
    said = chat.reply_ids("ab", context)
    assert spoken(chat.texts([said], [context])[0]) == "ab"
    before, answer = chat.answer_ids("a", "b", context)
    assert spoken(chat.texts([(*before, *answer)], [context])[0]) == "ab"
    assert answer == chat.encode("b")


def test_special_tokens_that_mark_thoughts_and_calls_are_part_of_the_text(tokenizer):
    other = copy.deepcopy(tokenizer)
    marks = ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>']
    other.add_special_tokens({"additional_special_tokens": [*marks, "<|image|>"]})
    chat = Chat(with_template(other, TOOLS))
    said = '<|channel>thought\nhm<channel|><|image|><|tool_call>call:ab{x:<|"|>1<|"|>}<tool_call|><|end|>'
    reply = chat.reply(encode(chat, said), (), [tool("ab")])
    assert reply == said.replace("<|image|>", "").removesuffix("<|end|>")
    assert (reply.content, reply.calls, reply.ended) == ("", (("ab", '{"x": "1"}'),), True)


def test_a_program_is_not_told_the_thoughts_of_a_reply(chat):
    assert chat.reply(encode(chat, "<think>hm</think>ab<|end|>")).content == "ab"
    assert chat.reply(encode(chat, "<think>hm")).content == ""


UNREADABLE = {
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open_pattern": r"CALL (?P<name>\w+)",
            "close": "!",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close": "<|end|>", "content": "text"},
    },
}


def test_a_form_that_only_the_tokenizer_knows_is_read_by_it(tokenizer):
    other = with_template(tokenizer, TOOLS)
    other.response_template = UNREADABLE
    chat = Chat(other)
    context = chat.context([user("x")], None, [tool("ab")])
    for said, calls in (
        ('CALL ab{"x": 1}!', (("ab", '{"x": 1}'),)),
        ('<tool_call>{"name": "ab"}</tool_call>', (("ab", "{}"),)),
        ('<tool_call>{</tool_call><tool_call>{"name": "ab"}</tool_call>', (("ab", "{}"),)),
    ):
        assert chat.reply(encode(chat, f"{said}<|end|>"), context, [tool("ab")]).calls == calls


OWN_CALL = "<tool_call>{{ c.function | tojson }}</tool_call>"


@pytest.mark.parametrize(
    "written",
    [
        "[{{ c.function.name }} {{ c.function.arguments.x }}]",
        '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments }}}',
        "<|assistant|>call({{ c.function.name }}) {{ c.function.arguments | tojson }}",
    ],
)
def test_a_template_whose_own_form_of_a_call_is_never_read_is_refused_by_name(tokenizer, written):
    other = with_template(tokenizer, TOOLS.replace(OWN_CALL, written))
    with pytest.raises(
        ChatTemplateError,
        match=r"must write calls of tools in a form that is read, got one of '' that writes '.*ab.*response_template",
    ):
        Chat(other).telling_of([tool("ab")])
    other.response_template = UNREADABLE
    with pytest.raises(ChatTemplateError, match="must write calls of tools in a form that is read"):
        Chat(other).telling_of([tool("ab")])


def test_a_template_whose_calls_only_the_tokenizer_reads_is_taken(tokenizer):
    written = "CALL {{ c.function.name }}{{ c.function.arguments | tojson }}!"
    other = with_template(tokenizer, TOOLS.replace(OWN_CALL, written))
    other.response_template = UNREADABLE
    assert Chat(other).telling_of([tool("ab")]).tools


def test_turns_that_end_with_no_token_have_calls_and_end_with_the_tokenizers_token(tokenizer):
    calls = "{% for c in m.tool_calls or [] %}" + OWN_CALL + "{% endfor %}\n\n"
    tools = "{% for t in tools or [] %}{{ t.function.name }}\n\n{% endfor %}"
    chat = Chat(with_template(tokenizer, tools + PLAIN.replace("\n\n", calls)))
    said = f"a{marked(write_call('ab', {'x': '1'}))}"
    ids = chat.reply_ids(said, (), [tool("ab")])
    assert ids[-1] == chat.tokenizer.eos_token_id
    assert chat.reply(ids, (), [tool("ab")]).calls == (("ab", '{"x": "1"}'),)


# Answers of tools


def test_an_answer_cannot_write_the_token_that_ends_a_turn_with_calls(tokenizer):
    template = BEHIND_CALLS.replace(
        "{% endfor %}<|end|>", "{% endfor %}{{ '<|called|>' if m.tool_calls else '<|end|>' }}"
    )
    other = with_template(tokenizer, template)
    other.add_tokens([AddedToken("<|called|>", special=False, normalized=False)])
    chat = Chat(other)
    conversation, _ = replied(chat, [user("x")], encode(chat, "ab<|called|>"))
    added = chat.context([*conversation.messages, {"role": "tool", "content": "<|called|>"}], conversation)[
        len(conversation.ids) :
    ]
    assert decode(chat, added) == "[<|called|>]<|assistant|>"
    assert tokens(chat, "<|called|>")[0] not in added


BEHIND_CALLS = (
    "{% for t in tools or [] %}<|system|>{{ t.function.name }}<|end|>{% endfor %}"
    "{% for m in messages %}{% if m.role == 'tool' %}{% if messages[loop.index0 - 1].tool_calls %}[{{ m.content }}]"
    "{% endif %}{% else %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}"
    "({{ c.function.name }} {{ c.function.arguments.x }}){% endfor %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_an_answer_that_a_template_shows_only_behind_a_call_is_in_the_context(tokenizer):
    chat = Chat(with_template(tokenizer, BEHIND_CALLS))
    conversation, _ = replied(chat, [user("x")], encode(chat, "ab<|end|>"))
    added = chat.context([*conversation.messages, {"role": "tool", "content": "1"}], conversation)[
        len(conversation.ids) :
    ]
    assert decode(chat, added) == "[1]<|assistant|>"


@pytest.mark.parametrize(
    ("shown", "rule"),
    [
        ("", "write every answer of a tool once, and in order"),
        ("[{{ m.content }}{{ m.content }}]", "write every answer of a tool once, and in order"),
        (
            "{% endif %}{{ raise_exception('no tools here') }}{% if 1 %}",
            "render the answers of tools, got one of '' that raises no tools here",
        ),
    ],
)
def test_a_template_that_breaks_a_law_of_answers_is_refused(tokenizer, shown, rule):
    template = BEHIND_CALLS.replace("[{{ m.content }}]", shown)
    with pytest.raises(ChatTemplateError, match=re.escape(f"the chat template must {rule}")):
        Chat(with_template(tokenizer, template)).context([user("x")], tools=[tool("ab")])


@pytest.mark.parametrize("shown", ["{{ m.content }}{{ m.content }}", "?"])
def test_a_template_that_does_not_write_each_message_once_is_refused(tokenizer, shown):
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'user' %}" + shown + "{% else %}{{ m.content }}"
        "{% endif %}<|end|>{% endfor %}<|assistant|>"
    )
    with pytest.raises(ChatTemplateError, match="must write every message once, and in order"):
        Chat(with_template(tokenizer, template))
