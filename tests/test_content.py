"""What a message says is text, or parts, of which those of text alone are read as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.boundary import read
from hf_credit.content import Content, Text, content_of, in_words, joined, text_of

_GIVEN: st.SearchStrategy[Any] = st.text(max_size=3)
_GIVEN = (
    st.none()
    | _GIVEN
    | st.lists(_GIVEN | st.builds(dict, type=st.just("text"), text=_GIVEN) | st.builds(Text, _GIVEN))
)


@given(_GIVEN)
def test_content_is_read_once_and_says_the_same_to_models_and_people(given: Any) -> None:
    content = content_of(given)
    assert content_of(content) == content
    assert text_of(given) == text_of(content) == in_words(content)
    assert isinstance(content, str) or any(isinstance(one, Text) for one in given)


@given(_GIVEN)
def test_content_is_a_value_that_json_keeps(given: Any) -> None:
    content = content_of(given)
    assert read(Content, json.loads(json.dumps(content, default=vars)), "a message") == content
    assert hash(content) == hash(content_of(given))


def test_contents_are_joined_as_texts_or_as_parts() -> None:
    assert joined(["a", "b"], " ") == "a b"
    assert joined([]) == ""
    assert joined(["a", (Text("b"), Text("c"))], " ") == (Text("a"), Text("b"), Text("c"))


@pytest.mark.parametrize(
    "given", [5, [5], {"type": "image_url"}, [{"type": "text", "text": None}], ["a", {"text": 1}]]
)
def test_a_part_of_no_known_kind_is_refused(given: Any) -> None:
    for reads in (content_of, text_of, in_words):
        with pytest.raises(ValueError, match="a message must be text or parts of text, got"):
            reads(given)
