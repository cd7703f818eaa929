"""Untrusted JSON and YAML."""

from __future__ import annotations

import json

import pytest
import yaml

from local_hub.plain import parse_json, parse_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[" * 100_000 + "]" * 100_000, "must be nested 100 deep at most"),
        ('{"a":' * 101 + "1" + "}" * 101, "must be nested 100 deep at most"),
        ("[-" + "1" * 400 + "]", "a number must have at most 300 digits"),
        ("1" * 5000, "a text must be JSON, got Exceeds the limit"),
        (r'{"\udfff": 1}', "got half of a surrogate pair"),
        ("{", "a text must be JSON, got Expecting"),
        ('{"a": NaN}', "a number must be finite, got nan"),
        ('{"a": 1e999}', "a number must be finite, got inf"),
    ],
)
def test_json_beyond_the_limits_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (BOMB, "got more than 100000 values"),
        (BOMB.replace("[", "{<<: [").replace("]", "]}").replace("x, ", "").replace("x", "{}"), "more than 100000"),
        ("&a [*a]", r"the alias \*a within what it stands for"),
        ("[" * 5000 + "]" * 5000, "must be nested 100 deep at most"),
        ("a: !!binary aGk=", "could not determine a constructor"),
        ("a: !!set {b, c}", "could not determine a constructor"),
        ("a: !!bool maybe", "a text must be YAML of plain values"),
        ("a: !!int ''", "a text must be YAML of plain values"),
        (".nan: 1", "a number must be finite, got nan"),
        ("a: -.inf", "a number must be finite, got -inf"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("a" * 2**21, "YAML must have at most 1048576 characters"),
    ],
)
def test_yaml_beyond_the_limits_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_yaml(text)


def test_values_within_the_limits_are_read_with_anchors_and_merges() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\nsame: [*base, *base]\n"
    assert parse_yaml(text) == yaml.safe_load(text)
    assert parse_json("[" * 99 + "1.5" + "]" * 99) == parse_yaml("[" * 99 + "1.5" + "]" * 99)


def test_what_is_read_can_be_answered_as_json() -> None:
    value = parse_yaml("2024-01-01: 2024-01-02 03:04:05\n1: yes\nnull: [1.5]\n1:30: !!timestamp 2024-01-01\n")
    assert json.loads(json.dumps(value, allow_nan=False)) == {
        "2024-01-01": "2024-01-02 03:04:05",
        "1": True,
        "null": [1.5],
        "1:30": "2024-01-01",
    }
