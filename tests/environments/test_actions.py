"""Actions and tool calls are read from replies as they are written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments.actions import (
    acting,
    call_in_words,
    calls_of,
    last_action,
    marked,
    numbers,
    one_action,
    plain_action,
    tag,
    write_call,
)
from hf_credit.replies import Call

WORDS = st.lists(st.from_regex("[a-z0-9]+", fullmatch=True), min_size=1, max_size=5).map(" ".join)


def test_a_tag_is_read():
    assert last_action("I think so. <action>place 1 2</action>") == "place 1 2"


def test_the_last_of_several_tags_counts():
    assert last_action("<action>place 1 1</action> or rather <action>place 2 2</action> yes") == "place 2 2"


def test_case_is_ignored_and_white_space_collapses():
    assert last_action("<ACTION>\n Place\t1  2 </Action>") == "place 1 2"


def test_an_unclosed_tag_after_a_complete_one_is_ignored():
    assert last_action("<action>place 1 1</action> <action>place 2 2") == "place 1 1"


def test_a_second_opening_tag_replaces_the_first():
    assert last_action("<action>place 1 1 <action>place 2 2</action>") == "place 2 2"


def test_letters_whose_lower_case_is_longer_do_not_shift_the_tag():
    # U+0130, a capital I with a dot, becomes two characters in lower case.
    assert last_action("\u0130\u0130\u0130<action>place 1 2</action>\u0130") == "place 1 2"


def test_letters_beyond_ascii_are_not_folded_into_ascii():
    # U+212A, the Kelvin sign, is `k` in lower case.
    assert last_action("<action>\u212aick</action>") == "\u212aick"


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "<think><action>x</action>",
        "<action>x</action></think>",
        "place 1 2",
        "<action>place 1 2",
        "place 1 2</action>",
        "</action><action>",
        "<act>x</act>",
        "\x00",
    ],
)
def test_a_reply_without_a_complete_tag_has_no_action(reply):
    assert last_action(reply) is None


def test_an_empty_tag_is_an_empty_action():
    assert last_action("<action> </action>") == ""


@given(st.text())
def test_any_text_can_be_read(reply):
    assert isinstance(plain_action(reply), str)


@given(reply=st.text(), action=WORDS)
def test_what_comes_before_the_last_tag_does_not_matter(reply, action):
    assert last_action(reply + tag(action)) == action


@given(WORDS)
def test_tagged_plain_and_upper_case_are_the_same_action(action):
    assert plain_action(action) == plain_action(tag(action)) == plain_action(tag(action).upper()) == action


@given(st.text())
def test_a_plain_action_is_its_own_plain_form(text):
    assert plain_action(plain_action(text)) == plain_action(text) or last_action(plain_action(text)) is not None


@pytest.mark.parametrize(
    ("action", "read"),
    [
        ("fill 1 2 3", (1, 2, 3)),
        ("fill 0 10 9999", (0, 10, 9999)),
        ("fill 1 2", None),
        ("fill 1 2 3 4", None),
        ("fill", None),
        ("", None),
        ("place 1 2 3", None),
        ("fill 01 2 3", None),
        ("fill +1 2 3", None),
        ("fill -1 2 3", None),
        ("fill 1.0 2 3", None),
        ("fill 1, 2, 3", None),
        ("fill 10000 2 3", None),
        ("fill 1  2 3", None),  # a plain action has single spaces
        ("fill 1 2 \u0663", None),  # an Arabic-Indic three
        ("fill 1 2 \u00b3", None),  # a superscript three
        ("fill 1 2 3\n", None),
        ("fill " + "9" * 5000 + " 2 3", None),
    ],
)
def test_numbers_have_one_spelling(action, read):
    assert numbers(action, "fill", 3) == read


def test_an_action_may_be_a_verb_only():
    assert numbers("look", "look", 0) == ()


@given(st.lists(st.integers(0, 9999), max_size=4))
def test_written_numbers_are_read_back(written):
    action = " ".join(["go", *map(str, written)])
    assert numbers(action, "go", len(written)) == tuple(written)


def test_a_call_as_text_names_its_arguments_and_quotes_other_text():
    assert call_in_words("sql", {"query": 'say "a"', "n": 1}) == 'sql(query="say \\"a\\"", n=1)'
    assert call_in_words("f(x) ", {"a=1, b": None}) == '"f(x) "("a=1, b"=null)'
    assert call_in_words("f", "broken") == 'f("broken")'


SIGNS = st.characters(exclude_characters="<[")  # the marks of replies begin with these
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(SIGNS, max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(SIGNS, max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    name=st.text(SIGNS, min_size=1, max_size=20),
    arguments=st.dictionaries(st.text(SIGNS, max_size=5), values, max_size=3),
)
def test_reading_a_written_call_returns_it(name, arguments):
    call = write_call(name, arguments)
    assert json.loads(call) == {"name": name, "arguments": arguments}
    assert one_action(marked(call)) == one_action(call) == call


@pytest.mark.parametrize("text", ["好" * 16_000, "\x01" * 2_700 + '"' * 8])
def test_a_call_that_escapes_make_longer_is_read_again(text):
    written = one_action(f"<tool_call>{json.dumps({'name': 'put', 'arguments': {'what': text}}, ensure_ascii=False)}")
    assert (calls_of(str(written)), str(one_action(str(written)))) == (written.made, written)
    assert written.made == (Call("put", {"what": text}),)


def test_a_call_of_other_characters_is_written_as_they_are():
    assert write_call("put", {"what": "茶"}) == '{"arguments": {"what": "茶"}, "name": "put"}'


@pytest.mark.parametrize("name", ["5", '""', "null"])
def test_an_action_whose_call_has_no_name_makes_no_call_that_can_be_read(name):
    assert [one for one in calls_of(f'{{"arguments": {{}}, "name": {name}}}') if not one.why] == []


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


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("so <action>a</action> or <ACTION>b</action>.", "<action>a</action> or <ACTION>b</action>"),
        ("<think><action>a</action></think> <action>b", "<action>b"),
        ('a <tool_call>{"name": "a"}</tool_call> b <tool_call>{"name": "b"}</tool_call> c',
         '<tool_call>{"name": "a"}</tool_call> b <tool_call>{"name": "b"}</tool_call>'),
        ("</action> nothing", ""),
    ],
)  # fmt: skip
def test_the_part_of_a_reply_that_acts_is_found_outside_its_thoughts(reply, expected):
    start, end = acting(reply)
    assert reply[start:end] == expected
