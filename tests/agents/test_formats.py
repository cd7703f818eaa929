"""A call may ask for a format: its reply is sampled freely, checked, counted, and given to the program as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from referencing.exceptions import Unresolvable

from hf_credit.agents import AgentInteraction
from hf_credit.agents.calls import canonical_call
from hf_credit.agents.check import check
from hf_credit.agents.dialects import dialect_of, read_call
from hf_credit.agents.formats import fits, schema_of
from hf_credit.agents.white_lists import RefusedCallError

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["city"],
    "additionalProperties": False,
}
CHAT = {"messages": [{"role": "user", "content": "q"}]}
ASKED = {
    "/chat/completions": {
        **CHAT,
        "response_format": {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}},
    },
    "/responses": {
        "input": "q",
        "text": {"format": {"type": "json_schema", "name": "city", "strict": True, "schema": CITY}},
    },
    "/messages": {**CHAT, "max_tokens": 9, "output_config": {"format": {"type": "json_schema", "schema": CITY}}},
}


@pytest.mark.parametrize("path", ASKED)
def test_every_dialect_can_ask_for_a_format(path: str) -> None:
    form, ignored = read_call(dialect_of(path, {}), ASKED[path])
    assert (canonical_call(form)["format"], ignored) == (CITY, 0)


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        ('{"city": "Bern"}', True),
        (' {"city": "Bern", "next": {"city": "Rom", "next": null}}\n', True),
        ('{"city": "Bern", "next": {"city": 3}}', False),
        ('{"city": "Bern", "more": 1}', False),
        ("Bern", False),
        ('{"city": "Bern"', False),
        ('```json\n{"city": "Bern"}\n```', False),
        ('{"city": NaN}', False),
        ('{"city": "a", "next": ' * 90 + "null" + "}" * 90, True),
        ('{"city": "a", "next": ' * 5000, False),
        ("", False),
    ],
)
def test_a_reply_has_the_format_or_not(text: str, fit: bool) -> None:
    assert fits(text, CITY) is fit


def test_any_object_is_json() -> None:
    asked = schema_of({"type": "json_object"})
    assert asked is not None
    assert [fits(text, asked) for text in ('{"a": [1]}', "{}", "[1]", "a")] == [True, True, False, False]
    assert schema_of({"type": "text"}) is None


def test_patterns_of_a_schema_are_left_to_the_program() -> None:
    schema = {"type": "object", "properties": {"a": {"pattern": "(a+)+$"}}, "patternProperties": {"(a+)+$": {}}}
    schema |= {"additionalProperties": False, "uniqueItems": True}
    assert fits(json.dumps({"a": "a" * 100 + "b", "a" * 100 + "b": 1}), schema)


def test_nested_alternatives_are_read_in_linear_time() -> None:
    of = {"$ref": "#/$defs/term"}
    pairs = [
        {"type": "object", "properties": {"of": of, "op": {"const": op}}, "required": ["of"]} for op in ("add", "mul")
    ]
    schema = {"$defs": {"term": {"anyOf": [*pairs, {"type": "number"}]}}, **of}
    nested = '{"of": ' * 40 + "%s" + ', "op": "mul"}' * 40  # 2 to the power of 40, if each were read again
    assert [fits(nested % value, schema) for value in ("1", '"1"')] == [True, False]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "thing"}, "'thing' is not valid"),
        ({"pattern": "("}, "regex"),
    ],
)
def test_what_is_no_schema_is_refused_before_a_reply(schema: Any, why: str) -> None:
    with pytest.raises(RefusedCallError, match="response_format of a call must be a JSON schema") as found:
        schema_of({"type": "json_schema", "json_schema": {"schema": schema}})
    assert why in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("name", ["http://127.0.0.1:9/schema", "#/$defs/missing", "file:///etc/hostname"])
def test_a_schema_that_refers_to_what_is_elsewhere_is_an_error_and_fetches_nothing(name: str) -> None:
    with pytest.raises(Unresolvable, match=re.escape(name.removeprefix("#"))):
        fits('{"a": 1}', {"properties": {"a": {"$ref": name}}})


@pytest.fixture(scope="module")
def typed() -> Iterator[AgentInteraction]:
    pytest.importorskip("openai")
    interaction = AgentInteraction("agent_on_openai:typed")
    yield interaction
    interaction.close()


def test_an_sdk_parses_what_was_sampled_freely(typed: AgentInteraction) -> None:
    good, bad = '{"city": "Bern", "sights": ["bears"]}', '{"city": "Bern"}'
    state = typed.start({"number": 1}, 0)
    for _ in range(2):
        state = typed.advance(state, [good])
    assert (state.status, typed.outcome(state), typed.metrics(state)["formatted"]) == ("finished", 2.0, 1.0)
    wrong = typed.advance(typed.advance(typed.start({"number": 1}, 0), [good]), [bad])
    assert (wrong.status, typed.metrics(wrong)["formatted"]) == ("raised", 0.5)
    assert typed.state_from_json(typed.state_to_json(wrong)) == wrong
    restored = typed.advance(typed.advance(typed.start({"number": 1}, 0), [good]), [good])
    assert restored == state


def test_a_check_replies_in_the_format(typed: AgentInteraction) -> None:
    findings = check(typed, [{"number": 1}])
    assert (findings.problems, findings.statuses) == ([], {"finished": 1})
