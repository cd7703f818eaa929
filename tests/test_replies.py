"""One function says what a model said, from any reply, in every form that the field's servers read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.replies import MARKS, MOST_CHARACTERS, open_thought, read_reply, spoken

TYPES = {
    "at": {"type": "string"},
    "n": {"type": "integer"},
    "all": {"type": "boolean"},
    "of": {"anyOf": [{"type": "array"}, {"type": "null"}]},
}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": TYPES}}}]


def named(reply: str, tools: Sequence[Mapping[str, Any]] = TOOLS) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in read_reply(reply, tools).calls]


# Thoughts

THOUGHTS = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("◁think▷", "◁/think▷"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    (" to=self<|message|>", "<|eom|><|start|>assistant to=user<|message|>"),
]


@pytest.mark.parametrize(("opened", "closed"), THOUGHTS)
def test_thoughts_are_not_said(opened: str, closed: str) -> None:
    said = read_reply(f"{opened}five?{closed} It is 7.")
    assert (said.thoughts, said.spoken, said.content) == ("five?", "It is 7.", "It is 7.")


@pytest.mark.parametrize(("opened", "closed"), THOUGHTS)
def test_a_thought_that_is_never_closed_is_all_thought(opened: str, closed: str) -> None:
    said = read_reply(f'{opened}five? <tool_call>{{"name": "look"}}</tool_call>')
    assert (said.spoken, said.content, said.made) == ("", "", ())


@pytest.mark.parametrize(("opened", "closed"), THOUGHTS[:6])
def test_text_before_a_mark_that_only_closes_is_a_thought(opened: str, closed: str) -> None:
    said = read_reply(f'five? <tool_call>{{"name": "look"}}</tool_call>{closed} It is 7.')
    assert (said.content, said.made) == ("It is 7.", ())


def test_a_mark_within_a_call_has_no_meaning() -> None:
    arguments = {"at": "</think> <think> <tool_call> [TOOL_CALLS]"}
    assert named(f"<tool_call>{json.dumps({'name': 'look', 'arguments': arguments})}</tool_call>") == [
        ("look", arguments)
    ]


# Forms whose arguments are JSON.
IN_JSON = [
    "{call}",
    "<think>hm</think>{call}",
    "<tool_call>\n{call}\n</tool_call>",
    "<|START_ACTION|>[{call}]<|END_ACTION|>",
    "<|python_tag|>{call}<|eom_id|>",
    "[TOOL_CALLS][{call}]",
    "[TOOL_CALLS]look[ARGS]{arguments}",
    "<function=look>{arguments}</function>",
    "<｜tool▁call▁begin｜>look<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
    "<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",
    "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{arguments}<|call|>",
    "<tool_calls>[{call}]</tool_calls>",
    "<TOOLCALL>[{call}]</TOOLCALL>",
    "<|tool_call|>[{call}]",
    "functools[{call}]",
]
CLOSING = ["</tool_call>", "</function>", "</parameter>", "<arg_key>", "<|eom_id|>", "[ARGS]", "```", '"', "\\", "{"]


@given(form=st.sampled_from(IN_JSON), at=st.lists(st.sampled_from([*sorted(MARKS), *CLOSING])).map("".join))
def test_a_mark_in_a_string_of_json_is_data_in_every_form(form: str, at: str) -> None:
    arguments = json.dumps({"at": at})
    reply = form.format(arguments=arguments, call=f'{{"name": "look", "arguments": {arguments}}}')
    said = read_reply(reply)
    assert ([(one.name, one.arguments) for one in said.made], said.content) == ([("look", {"at": at})], "")


def test_the_end_of_a_context_can_open_a_thought() -> None:
    assert [open_thought(one) for one in ("<think>\n", "a <think>", "<think>\n\n</think>\n\n", "<think> a", "")] == [
        "<think>\n",
        "<think>",
        "",
        "",
        "",
    ]
    assert open_thought("<|channel>thought\n") == "<|channel>thought\n"


def test_text_without_marks_is_said_unchanged() -> None:
    for text in ("", " 7 ", "a < b\n", "[1, 2]", '{"name": "Bob"}', "</b>", "[T]"):
        assert (read_reply(text).spoken, read_reply(text).content, spoken(text)) == (text, text, text)


# Calls

LOOK = ("look", {"at": "box"})


@pytest.mark.parametrize(
    "reply",
    [
        '<tool_call>{"name": "look", "arguments": {"at": "box"}}</tool_call>',
        'I look.\n<tool_call>\n{"arguments": {"at": "box"}, "name": "look"}\n</tool_call>\n',
        '<think>{"name": "run", "arguments": {}} <tool_call>?</think>\n<function=look>{"at": "box"}</function>',
        '<tool_call>{"name": "look", "arguments": "{\\"at\\": \\"box\\"}"}</tool_call>',
        '<tool_call>{"type": "function", "function": {"name": "look", "arguments": {"at": "box"}}}</tool_call>',
        '<tool_call>[{"name": "look", "parameters": {"at": "box"}}]</tool_call>',
        '<tool_call>{"name": "look", "arguments": {"at": "box"}}',
        "<tool_call>\n<function=look>\n<parameter=at>\nbox\n</parameter>\n</function>\n</tool_call>",
        "<function=look><parameter=at>box</parameter></function>",
        ' {"name": "look", "parameters": {"at": "box"}} ',
        '[{"name": "look", "arguments": {"at": "box"}}]',
        '{"type": "function", "function": {"name": "look", "arguments": "{\\"at\\": \\"box\\"}"}}',
        '<|python_tag|>{"name": "look", "parameters": {"at": "box"}}',
        '[TOOL_CALLS][{"name": "look", "arguments": {"at": "box"}}]',
        '[TOOL_CALLS]look[ARGS]{"at": "box"}',
        '[TOOL_CALLS]look[CALL_ID]abcdef123[ARGS]{"at": "box"}',
        '<|tool_call>call:look{at:<|"|>box<|"|>}<tool_call|>',
        "<|tool_call_start|>[look(at='box')]<|tool_call_end|>",
        '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "look", "parameters": {"at": "box"}}]<|END_ACTION|>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n"
        '{"at": "box"}\n```<｜tool▁call▁end｜>',
        '<｜tool▁call▁begin｜>look<｜tool▁sep｜>{"at": "box"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        '<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{"at": "box"}<|tool_call_end|>',
        "<tool_call>look\n<arg_key>at</arg_key>\n<arg_value>box</arg_value>\n</tool_call>",
        '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"at": "box"}<|call|>',
        ' to=functions.look<|channel|>commentary json<|message|>{"at": "box"}',
        '<minimax:tool_call>\n<invoke name="look">\n<parameter name="at">box</parameter>\n</invoke>\n'
        "</minimax:tool_call>",
        ' to=look<|message|><atem:function_calls>\n<atem:invoke name="look">\n<atem:parameter name="at">box'
        "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
        '<tool_calls>[{"name": "look", "arguments": {"at": "box"}}]</tool_calls>',
        '<TOOLCALL>[{"name": "look", "arguments": {"at": "box"}}]</TOOLCALL>',
        '<|tool_call|>[{"name": "look", "arguments": {"at": "box"}}]',
        '<|tool_call|>[{"name": "look", "arguments": {"at": "box"}}]<|/tool_call|>',
        '<function_call> {"name": "look", "arguments": {"at": "box"}}',
        'functools[{"name": "look", "arguments": {"at": "box"}}]',
        "<function_calls>\nlook(at='box')\n</function_calls>",
        '<function_calls>[{"name": "look", "arguments": {"at": "box"}}]</function_calls>',
        '<function_calls>\n<invoke name="look">\n<parameter name="at">box</parameter>\n</invoke>\n</function_calls>',
        '[look(at="box")]',
        '<|python_start|>[look(at="box")]<|python_end|>',
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="look">\n<｜DSML｜parameter name="at" string="true">box'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        '<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="look">'
        '<steptml:parameter name="at">box</steptml:parameter></steptml:invoke><｜tool_call_end｜>\n'
        "<｜tool_calls_end｜>",
        "<seed:tool_call>\n<function=look>\n<parameter=at>box</parameter>\n</function>\n</seed:tool_call>",
        "<|tool_call_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>"
        '{"at": "box"}<|tool_call_end|><|tool_call_section_end|>',
    ],
)
def test_every_form_of_a_call_is_read(reply: str) -> None:
    assert named(reply) == [LOOK]
    assert read_reply(reply, TOOLS).content in ("", "I look.")


@pytest.mark.parametrize("arguments", ["", ', "arguments": null', ', "arguments": ""', ', "arguments": "{}"'])
def test_arguments_may_be_missing(arguments: str) -> None:
    assert named(f'<tool_call>{{"name": "look"{arguments}}}</tool_call>') == [("look", {})]


def test_all_calls_of_a_reply_are_read_in_order() -> None:
    two = '<tool_call>{"name": "a"}</tool_call>\n<tool_call>{"name": "b", "arguments": {"n": 1}}</tool_call>'
    assert named(two) == [("a", {}), ("b", {"n": 1})]


@pytest.mark.parametrize(
    "reply",
    [
        '{"name": "a", "parameters": {}}; {"name": "b", "parameters": {"n": 1}}',
        '<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {"n": 1}}<|eom_id|>',
        '<tool_call>\n{"name": "a"}\n{"name": "b", "arguments": {"n": 1}}\n</tool_call>',
        "<function_calls>\na()\nb(n=1)\n</function_calls>",
        "[a(), b(n=1)]",
        '<tool_calls>[{"name": "a"}, {"name": "b", "arguments": {"n": 1}}]</tool_calls>',
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="a">\n</｜DSML｜invoke>\n<｜DSML｜invoke name="b">\n'
        '<｜DSML｜parameter name="n" string="false">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        "</｜DSML｜function_calls>",
    ],
)
def test_all_calls_of_one_mark_are_read_in_order(reply: str) -> None:
    tools = [{"name": "b", "parameters": {"properties": {"n": {"type": "integer"}}}}]
    said = read_reply(reply, tools)
    assert ([(one.name, one.arguments) for one in said.made], said.content) == ([("a", {}), ("b", {"n": 1})], "")


@pytest.mark.filterwarnings("error")
def test_escapes_that_python_warns_of_are_letters() -> None:
    reply = r"""[look(at="\d\\d\n\'\q")]"""
    assert named(reply) == named(f"<function_calls>{reply}</function_calls>") == [("look", {"at": "\\d\\d\n'\\q"})]


def test_python_and_json_that_call_nothing_are_said() -> None:
    for text in (
        "[f(1)]",
        "[f(x=1), 2]",
        "[f(x=y)]",
        "[f(x=1).g]",
        '{"name": "a"}; {"n": 1}',
        "from functools import x",
    ):
        assert (read_reply(text).content, read_reply(text).made) == (text, ())


def test_arguments_in_xml_have_the_types_of_the_tool_and_are_text_without() -> None:
    said = "".join(
        f"<parameter={k}>{v}</parameter>" for k, v in (("at", "7"), ("n", "7"), ("all", "True"), ("of", "[1]"))
    )
    reply = f"<function=look>{said}</function>"
    assert named(reply) == [("look", {"at": "7", "n": 7, "all": True, "of": [1]})]
    assert named(reply, ()) == [("look", {"at": "7", "n": "7", "all": "True", "of": "[1]"})]
    assert named("<function=look><parameter=n>seven</parameter></function>") == [("look", {"n": "seven"})]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no name"),
        ("{", "must be JSON"),
        ("look()", "no name"),
        ("__import__('os').system('true')", "no name"),
        ('{"name": 1, "arguments": {}}', "no name"),
        ('{"name": "", "arguments": {}}', "no name"),
        ('{"name": "look", "arguments": [1]}', "not an object"),
        ('{"name": "look", "arguments": "{"}', "must be JSON"),
        ('{"name": "look", "arguments": {"n": NaN}}', "must be finite"),
        ('{"name": "look", "arguments": {"n": 1e999}}', "must be finite"),
        ('{"name": "look", "arguments": {"n": ' + "9" * 5000 + "}}", "300 digits"),
        ('{"name": "look", "arguments": {"n": ' + "[" * 40 + "]" * 40 + "}}", "32 deep"),
        ("[" * 15_000, "deep|must be JSON"),  # as deep as this version of Python reads
        ('{"name": "look", "arguments": {"at": "' + "x" * 20_000 + '"}}', "more than 16,384 characters"),
        ("<function=look><parameter=at>box</function>", "not closed"),
    ],
)
def test_a_call_that_cannot_be_read_says_why_and_leaves_the_others(text: str, why: str) -> None:
    reply = f'<tool_call>{text}</tool_call><tool_call>{{"name": "look"}}</tool_call>'
    said = read_reply(reply)
    assert [call.name for call in said.calls] == ["look"]
    (bad,) = said.bad_calls
    assert re.search(why, bad.why)


def test_arguments_that_cannot_be_read_are_kept_as_written_and_calls_without_a_name_are_text() -> None:
    said = read_reply('a <tool_call>{"name": "look", "arguments": "{x"}</tool_call> <tool_call>{y</tool_call>')
    assert (said.written_calls, said.content) == ((("look", "{x"),), "a  <tool_call>{y</tool_call>")


@pytest.mark.parametrize("body", ["", "[]", "look", "x = look(at='box')", "look(at='box')\nimport os", "look('box')"])
@pytest.mark.parametrize("form", ["<function_calls>{}</function_calls>", "<|tool_call_start|>{}<|tool_call_end|>"])
def test_python_that_is_no_call_cannot_be_read(form: str, body: str) -> None:
    said = read_reply(form.format(body))
    assert (said.calls, len(said.bad_calls), said.content) == ((), 1, form.format(body))


@pytest.mark.parametrize(
    "reply", ["<tool_call>", "<function=look>", "<function=look><parameter=at>bo", "<tool_call>{"]
)
def test_a_call_that_is_cut_cannot_be_read(reply: str) -> None:
    assert (read_reply(reply).calls, len(read_reply(reply).bad_calls)) == ((), 1)


def test_half_of_a_surrogate_pair_becomes_a_replacement_character() -> None:
    assert named('<tool_call>{"name": "look", "arguments": {"at": "\\ud83d"}}</tool_call>') == [
        ("look", {"at": "\ufffd"})
    ]


@pytest.mark.parametrize(
    "parameters",
    [
        5,
        None,
        [],
        {"properties": 5},
        {"properties": {"at": 5}},
        {"properties": {"at": {"type": [["x"], 5]}}},
        {"properties": {"at": {"anyOf": 5}}},
    ],
)
def test_schemas_of_any_form_leave_arguments_text(parameters: Any) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": parameters}}]
    assert named("<function=look><parameter=at>7</parameter></function>", tools) == [("look", {"at": "7"})]


PIECES = st.sampled_from(
    [*sorted(MARKS), "look", "{", "}", '"', ":", "[", "]", "\n", "<parameter=a>", "</parameter>", "a"]
)


@given(reply=st.text() | st.lists(PIECES, max_size=30).map("".join))
def test_no_reply_raises_and_nothing_is_both_thought_and_said(reply: str) -> None:
    said = read_reply(reply, TOOLS)
    assert len(said.thoughts) + len(said.spoken) <= len(reply)
    assert all((call.why == "") == (call.written == "") or call.why for call in said.made)


@pytest.mark.parametrize(
    "text",
    [
        *("<function=a>", "<tool_call>", '<tool_call>{"', "<tool_call>a<arg_key>", "<think>", " to=a"),
        *('<tool_call>"</tool_call>"', '<tool_call>{\\"</tool_call>'),
    ],
)
def test_a_long_reply_of_unclosed_marks_is_read_in_pieces(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = text * (65_536 // len(text))
    assert read_reply(reply).calls == ()
    assert sum(len(call.written) for call in read_reply(reply).made) <= len(reply)
    assert len(read_reply("<function=a>{}</function>" * 5000).calls) == 5000
    assert len(reply) > MOST_CHARACTERS
