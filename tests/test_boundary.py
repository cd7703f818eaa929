"""Shapes: what fits comes back, and what does not is told with its sender and its place."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.boundary import Range, check, encodable, read

Id = Annotated[int, Range(0, 9)]


@dataclass(frozen=True)
class Point:
    x: float
    tags: tuple[str, ...] = ()


class Answer(TypedDict):
    ids: Annotated[list[Id], Range(1, 3)]
    at: NotRequired[Point | None]


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        (Answer, {"ids": [1], "other": 5}, {"ids": [1]}),
        (Answer, {"ids": [1], "at": {"x": 1, "tags": ["a"]}}, {"ids": [1], "at": Point(1, ("a",))}),
        (tuple[Point, ...], [{"x": 1.0}], (Point(1.0),)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[tuple[int, ...], ...], [[1], []], ((1,), ())),
        (Mapping[str, Literal["a", "b"]], {"k": "a"}, {"k": "a"}),
        (str | list[str], ["a"], ["a"]),
        (list[float], [], []),
        (frozenset[str], ["a", "a"], frozenset({"a"})),
        (Any, [object], [object]),
    ],
)
def test_what_fits_comes_back(kind: Any, value: Any, made: Any) -> None:
    assert read(kind, value, "an answer") == made


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (Answer, None, "an answer must be an object, got None; correct it."),
        (Answer, {}, "an answer must have the fields at, ids, got 'ids' wrong; add it."),
        (Answer, {"ids": [1, -7]}, "ids[1] of an answer must be a whole number from 0 to 9, got -7; correct it."),
        (Answer, {"ids": [True]}, "ids[0] of an answer must be a whole number from 0 to 9, got True; correct it."),
        (Answer, {"ids": []}, "ids of an answer must be of a length in [1, 3], got 0; correct it."),
        (Answer, {"ids": "123"}, "ids of an answer must be a list, got '123'; correct it."),
        (Answer, {"ids": [1], "at": {"y": 1}}, "at of an answer must have the fields tags, x, got 'x' wrong; add it."),
        (Point, {"x": 1, "y": 2}, "an answer must have the fields tags, x, got 'y' wrong; remove it."),
        (Point, {"x": float("nan")}, "x of an answer must be a finite number, got nan; correct it."),
        (list[Point], [{"x": 0}, {"x": "0"}], "[1].x of an answer must be a finite number, got '0'; correct it."),
        (tuple[int, str], [1], "an answer must be a list of 2, got [1]; correct it."),
        (Mapping[str, int], {"a": "b"}, "['a'] of an answer must be a whole number, got 'b'; correct it."),
        (Annotated[str, Range(1, 2)], "abc", "an answer must be of a length in [1, 2], got 3; correct it."),
    ],
)
def test_what_does_not_fit_is_told_with_its_sender_and_its_place(kind: Any, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match="must") as refusal:
        read(kind, value, "an answer")
    assert str(refusal.value) == told


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.sampled_from([10**400]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["xyids", "tagsat"]), inner),
    max_leaves=8,
)


@given(PLAIN)
def test_any_value_fits_or_is_refused_in_one_short_sentence(value: Any) -> None:
    for kind in (Answer, Point, tuple[int, str], Mapping[str, Id], list[float], Literal["a"], str | None):
        with contextlib.suppress(ValueError):
            read(kind, value, "an answer")
            continue
        with pytest.raises(ValueError, match="must") as refusal:
            read(kind, value, "an answer")
        assert "\n" not in str(refusal.value)
        assert len(str(refusal.value)) < 500


@given(st.lists(st.integers(-2, 12)))
def test_lists_of_numbers_are_read_as_each_by_itself(values: list[int]) -> None:
    def fits(kind: Any, value: Any) -> bool:
        try:
            read(kind, value, "it")
        except ValueError:
            return False
        return True

    assert fits(list[Id], values) == all(fits(Id, one) for one in values)


@given(st.text(st.characters()))
def test_only_halves_of_surrogate_pairs_are_replaced(text: str) -> None:
    (made,) = encodable([{text: text}])
    assert made == {made_text(text): made_text(text)}
    made_text(text).encode("utf-8")


def made_text(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)


@pytest.mark.parametrize(
    ("kind", "value", "rule"),
    [
        (int | list[int], "x", "fanout must be a whole number or a list, got 'x'; correct it."),
        (list[int] | float, ["x"], "fanout[0] must be a whole number, got 'x'; correct it."),
        (int | None, "x", "fanout must be a whole number, got 'x'; correct it."),
    ],
)
def test_an_error_of_several_types_names_them_all_or_the_place_in_the_one_that_fits(
    kind: Any, value: Any, rule: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        check("fanout", value, kind)
