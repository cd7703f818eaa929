"""The operations that a proxy allows on an object that imitates everything."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from code_sandbox.inside import protocol
from code_sandbox.inside.proxies import Remote, is_kin, is_proxy, kin, names_added


class Answers:
    """Gives the same answer to every request."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, []  # type: ignore[var-annotated]

    def ask(self, operation: str, *operands: Any) -> Any:
        self.asked.append(operation)
        return self.answer


def test_an_operator_on_plain_data_does_not_yield_plain_data() -> None:
    with pytest.raises(TypeError, match="must give an object again"):
        operator.sub(Remote(Answers(0), 1, "Zero"), 4)
    assert Remote(Answers(0), 1, "Zero") - Remote(Answers(0), 2, "Zero") == 0
    assert abs(Remote(Answers(5), 1, "Vector")) == 5


def test_an_object_never_equals_plain_data() -> None:
    link = Answers(True)
    one = Remote(link, 1, "Equal")
    assert [one == other for other in (1, "x", [1])] == [False] * 3
    assert one != 1
    assert link.asked == []
    assert one == Remote(link, 2, "Equal")
    assert one != Remote(link, 2, "Equal", None, by_identity=True)


def test_plain_data_is_no_object_of_the_solutions_classes() -> None:
    link = Answers(True)
    kind = Remote(link, 1, "type")
    assert not isinstance(5, kind)  # type: ignore[arg-type]
    assert link.asked == []
    assert isinstance(Remote(link, 2, "Own"), kind)  # type: ignore[arg-type]


class Sly(list[Any]):
    def __eq__(self, other: object) -> bool:
        return True

    def __len__(self) -> int:
        return 7

    def __getitem__(self, place: Any) -> Any:
        return 7

    def append(self, item: Any) -> None:
        pass

    def __sub__(self, other: Any) -> Any:
        return 0

    __hash__ = None  # type: ignore[assignment]


def test_plain_data_of_an_own_class_compares_and_counts_as_plain_data() -> None:
    assert names_added(Sly, list) == ["__getitem__", "__sub__", "append"]
    link = Answers(7)
    kind = kin(link, list, ["Sly", [*names_added(Sly, list), "__eq__", "__len__", "_private"]])
    value = kind([1, 2])
    assert is_kin(value)
    assert is_proxy(value)
    assert value == [1, 2]
    assert value != [7, 7]
    assert (len(value), list(value), link.asked) == (2, [1, 2], [])
    assert (value[0], value.append, value.anything, link.asked) == (7, 7, 7, ["getitem", "get", "get"])
    with pytest.raises(TypeError):
        value - 4
    assert kin(link, list, ["Sly", ["append"]]) is kin(link, list, ["Sly", ["append"]])


@pytest.mark.parametrize("described", [None, [], ["x"], [1, []], ["x", None], ["x", [1]], ["\0", []]])
def test_a_description_that_is_none_is_refused(described: Any) -> None:
    with pytest.raises(protocol.ProtocolError):
        kin(Answers(1), int, described)


def test_what_nothing_extends_is_refused() -> None:
    with pytest.raises(protocol.ProtocolError):
        kin(Answers(1), bool, ["x", []])
