"""Tool calls are read in the formats of chat templates, as data, from any reply."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hf_credit.environments import tool_calls
from hf_credit.environments.tool_calls import call_in_words, marked, read_calls, write_call

LOOK = ("look", {"at": "box"})


@pytest.mark.parametrize(
    "reply",
    [
        '<tool_call>{"name": "look", "arguments": {"at": "box"}}</tool_call>',
        'I look.\n<tool_call>\n{"arguments": {"at": "box"}, "name": "look"}\n</tool_call>\n',
        '<think>{"name": "run", "arguments": {}} <tool_call>?</think>\n<function=look>{"at": "box"}</function>',
        ' {"name": "look", "parameters": {"at": "box"}} ',
        '[{"name": "look", "arguments": {"at": "box"}}]',
    ],
)
def test_every_known_format_of_a_call_is_read(reply):
    assert read_calls(reply) == [LOOK]


def test_all_calls_of_a_reply_are_read_in_order():
    two = marked(write_call("a", {})) + marked(write_call("b", {"n": 1}))
    assert read_calls(two) == [("a", {}), ("b", {"n": 1})]


def test_a_call_as_text_names_its_arguments_and_quotes_other_text():
    assert call_in_words("sql", {"query": 'say "a"', "n": 1}) == 'sql(query="say \\"a\\"", n=1)'
    assert call_in_words("f(x) ", {"a=1, b": None}) == '"f(x) "("a=1, b"=null)'
    assert call_in_words("f", "broken") == 'f("broken")'


@pytest.mark.parametrize(
    "reply", ["", "The answer is 4.", "{x}", "[1, 2]", '"look"', "</tool_call>", "<think>only", "{"]
)
def test_a_reply_without_a_call_has_none(reply):
    assert read_calls(reply) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "look()",
        "__import__('os').system('true')",
        '{"name": "look"}',
        '{"name": 1, "arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": "look", "arguments": "{}"}',
        '{"name": "look", "arguments": {"n": NaN}}',
        '{"name": "look", "arguments": {"n": ' + "9" * 5000 + "}}",
        "[" * 5000,
        '{"name": "look", "arguments": {"at": "' + "x" * 20_000 + '"}}',
    ],
)
def test_an_unreadable_call_differs_from_no_call(text):
    assert read_calls(f"<tool_call>{text}</tool_call>") is None
    assert read_calls(marked(write_call(*LOOK)) + f"<tool_call>{text}</tool_call>") is None


@pytest.mark.parametrize("reply", ["<tool_call>", '<tool_call>{"name": "look", "arguments": {}}', "<function=look>{}"])
def test_a_call_that_is_not_closed_cannot_be_read(reply):
    assert read_calls(reply) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(name=st.text(min_size=1, max_size=20), arguments=st.dictionaries(st.text(max_size=5), values, max_size=3))
def test_reading_a_written_call_returns_it(name, arguments):
    call = write_call(name, arguments)
    assert json.loads(call) == {"name": name, "arguments": arguments}
    if "</think>" not in call and "<" not in call:
        assert read_calls(marked(call)) == read_calls(call) == [(name, arguments)]


@given(reply=st.text() | st.text(alphabet='<tool_cal>/{}[]":,functi=1 '))
def test_no_reply_raises(reply):
    read_calls(reply)


@given(
    st.lists(st.sampled_from(["<function=", "a", ".b", ">", "</function>", "{}", "\n", "{"]), max_size=12).map("".join)
)
def test_all_marked_and_closed_function_calls_are_read(reply):
    found = re.findall(r"<function=([\w.-]{1,128})>(.*?)</function>", reply, re.DOTALL)
    sound = len(found) == reply.count("<function=") and all(text.strip() == "{}" for _, text in found)
    assume("<function=" in reply)
    assert read_calls(reply) == ([(name, {}) for name, _ in found] if sound else None)


@pytest.mark.parametrize("text", ["<function=a>", "<function=", "<function=a>{}", "<tool_call>", "<tool_call>{"])
def test_a_long_reply_of_unclosed_calls_cannot_be_read(text):
    assert read_calls(text * (131_072 // len(text))) is None
    assert read_calls("<function=a>{}</function>" * 5000) == [("a", {})] * 5000


def test_each_part_of_a_reply_is_read_once(monkeypatch):
    read = []

    class Counted:
        def match(self, part):
            read.append(len(part))
            return pattern.match(part)

    pattern = tool_calls._FUNCTION
    monkeypatch.setattr(tool_calls, "_FUNCTION", Counted())
    reply = "<function=a>" * 1000
    assert read_calls(reply) is None
    assert sum(read) <= len(reply)
