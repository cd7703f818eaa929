"""A call is an action as one line of text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments.tool_calls import call_in_words, marked, one_action, write_call


def test_a_call_as_text_names_its_arguments_and_quotes_other_text():
    assert call_in_words("sql", {"query": 'say "a"', "n": 1}) == 'sql(query="say \\"a\\"", n=1)'
    assert call_in_words("f(x) ", {"a=1, b": None}) == '"f(x) "("a=1, b"=null)'
    assert call_in_words("f", "broken") == 'f("broken")'


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(name=st.text(min_size=1, max_size=20), arguments=st.dictionaries(st.text(max_size=5), values, max_size=3))
def test_reading_a_written_call_returns_it(name, arguments):
    call = write_call(name, arguments)
    assert json.loads(call) == {"name": name, "arguments": arguments}
    assert one_action(marked(call)) == one_action(call) == call


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("<think>4?</think> It is 4.", "It is 4."),
        ("<think>4?", ""),
        ('<think><tool_call>{"name": "a"}</tool_call>', ""),
        (
            "A. <function=a>{}</function><function=b>{}</function>",
            "A. <function=a>{}</function><function=b>{}</function>",
        ),
        ("<tool_call>{</tool_call>", "<tool_call>{</tool_call>"),
    ],
)
def test_a_reply_without_exactly_one_call_is_its_text_without_thoughts(reply, action):
    assert one_action(reply) == action
