from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.safe_io import MOST_DEPTH, parse_json, parse_yaml, read_json, read_text, read_yaml

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_within_the_limits_is_read_as_ever(value: Any) -> None:
    assert parse_json(json.dumps(value)) == value
    text = yaml.safe_dump(value)
    assert parse_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[" * 100_000 + "]" * 100_000, "must be nested 100 deep at most"),
        ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), "must be nested 100 deep at most"),
        ('{"a":' * 500 + "1" + "}" * 500, "must be nested 100 deep at most"),
        ("1" * 5000, "a number must have at most 300 digits"),
        ("[-" + "1" * 400 + "]", "a number must have at most 300 digits"),
        (r'{"a": ["\ud800"]}', "got half of a surrogate pair at character 0"),
        (r'{"\udfff": 1}', "got half of a surrogate pair"),
        ("{", "a text must be JSON, got Expecting"),
    ],
)
def test_json_beyond_the_limits_is_refused_in_one_sentence(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as error:
        parse_json(text)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (BOMB, "got more than 100000 values"),
        (MERGES, "got more than 100000 values"),
        ("&a [*a]", r"the alias \*a within its own value"),
        ("*a", "found undefined alias"),
        ("[" * 5000 + "]" * 5000, "must be nested 100 deep at most"),
        ("a: " + "1" * 5000, "a text must be YAML of plain values, got Exceeds the limit"),
        ("a: !!binary aGk=", "could not determine a constructor"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("a: \x00", "a text must be YAML of plain values, got unacceptable character"),
        ("a" * 2**21, "YAML must have at most 1048576 characters"),
    ],
)
def test_yaml_beyond_the_limits_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_yaml(text)


def test_dates_and_times_are_text_whatever_their_tags_say() -> None:
    # Of base 60, an integer takes quadratic time.
    text = "{a: 2024-13-45, b: !!timestamp 2024-01-01, c: 1:30, d: !!int 1:30, e: 1:30.5, 1:2: 0x1f}"
    read = {"a": "2024-13-45", "b": "2024-01-01", "c": "1:30", "d": "1:30", "e": "1:30.5", "1:2": 31}
    assert parse_yaml(text) == read


def test_only_the_bounded_loaders_read_yaml() -> None:
    reading = re.compile(r"yaml\.(\w+_)?load")
    root = Path(__file__).parents[1]
    modules = [path for top in [root / "src", *root.glob("packages/*/src")] for path in top.rglob("*.py")]
    found = {path.name for path in modules if reading.search(path.read_text())}
    assert found == {"safe_io.py", "plain.py"}


def test_anchors_and_merges_work_within_the_limits() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\nsame: [*base, *base]\n"
    assert parse_yaml(text) == yaml.safe_load(text)


def test_what_is_packed_is_unpacked_as_far_as_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "rows.json.gz"
    path.write_bytes(gzip.compress(b"[1]"))
    assert read_json(path) == [1]
    path.write_bytes(gzip.compress(b" " * 10**7))
    with pytest.raises(ValueError, match=r"must have at most 1000 bytes of text, got more in 'rows\.json\.gz'"):
        read_text(path, 1000)


@pytest.mark.parametrize(
    "content",
    [b"\xff", gzip.compress(b"[1]")[:-4], b"no gzip", gzip.compress(b"a" * 99)[:20]],
    ids=["no text", "cut end", "no gzip", "cut middle"],
)
def test_a_file_that_is_no_text_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ("rows.json" if content == b"\xff" else "rows.json.gz")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"must be text in UTF-8, got .* in 'rows\.json"):
        read_json(path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    with pytest.raises(ValueError, match=r"a\.yaml: a text must be YAML"):
        read_yaml(tmp_path / "a.yaml")
