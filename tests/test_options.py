"""Options: values are checked against a signature, which also describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import pytest

from hf_credit.boundary import Range, check
from hf_credit.options import (
    Count,
    Options,
    Positive,
    Share,
    arguments_in,
    check_options,
    filled_by_factory,
    options_of,
    with_parts,
)


@dataclass(frozen=True, kw_only=True)
class Part(Options):
    """A part.

    Args:
        share: of what
            there is.
        name: one of two.
        bound: no option.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    share: Share = 0.5
    name: Literal["left", "right"] = "left"
    bound: tuple[str, ...] = filled_by_factory(())


@with_parts
def factory(size: Count = 2, part: Part = Part(name="right"), sizes: Sequence[Count] = (1,)) -> tuple[Any, ...]:
    """A factory.

    Args:
        size: how many.
        sizes: how many each.
    """
    return size, part, sizes


def stranger(
    whole: int = 1,
    real: Annotated[float | None, "a note"] = None,
    decay: Annotated[float, Range(0, below=1)] = 0.5,
    most: Annotated[int, Range(most=3)] = 1,
    positive: Positive = 1.0,
    said: bool = False,
    text: str | None = None,
    table: Mapping[str, float] | None = None,
    either: dict | str = "",
    fits: tuple[int, str] = (1, ""),
    odd: float = None,  # type: ignore[assignment]  # noqa: RUF013 (as strangers write it)
    code: Any = None,
) -> None: ...


def test_a_part_stands_for_its_options() -> None:
    assert factory() == (2, Part(name="right"), (1,))
    assert factory(share=1, size=3, sizes=[2, 2]) == (3, Part(name="right", share=1), [2, 2])
    assert list(options_of(factory)) == ["size", "share", "name", "sizes"]
    with pytest.raises(TypeError, match="bound"):
        factory(bound=("a",))


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        (factory, {"size": 0}, "size must be at least 1, got 0; raise it."),
        (factory, {"size": True}, "size must be a whole number, got True; correct it."),
        (factory, {"share": 1.5}, "share must be in [0, 1], got 1.5; correct it."),
        (factory, {"name": "up"}, "name must be one of left, right, got 'up'; pick one."),
        (factory, {"sizes": [1, 0]}, "sizes[1] must be at least 1, got 0; raise it."),
        (factory, {"sizes": "12"}, "sizes must be a list, got '12'; correct it."),
        (Part, {"share": "1"}, "share must be a finite number, got '1'; correct it."),
        (Part, {"bound": ("a", 1)}, "bound[1] must be a text, got 1; correct it."),
        (stranger, {"whole": 1.5}, "whole must be a whole number, got 1.5; correct it."),
        (stranger, {"real": "x"}, "real must be a finite number, got 'x'; correct it."),
        (stranger, {"decay": 1}, "decay must be in [0, 1), got 1; lower it."),
        (stranger, {"decay": -1}, "decay must be at least 0, got -1; raise it."),
        (stranger, {"most": 4}, "most must be at most 3, got 4; lower it."),
        (stranger, {"positive": 0}, "positive must be above 0, got 0; raise it."),
        (stranger, {"said": "no"}, "said must be true or false, got 'no'; correct it."),
        (stranger, {"text": 1}, "text must be a text, got 1; correct it."),
        (stranger, {"table": [1]}, "table must be a mapping, got [1]; correct it."),
        (stranger, {"either": 1}, "either must be a mapping or a text, got 1; correct it."),
    ],
)
def test_an_option_that_does_not_fit_the_signature_is_refused(call: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as refusal:
        check_options(call, given) if call is stranger else call(**given)
    assert str(refusal.value) == message


def test_what_fits_is_taken_and_a_default_is_never_refused() -> None:
    fitting = {"real": 1, "decay": 0, "text": None, "table": {"a": 1}, "either": {}, "fits": [2, "b"], "code": object}
    check_options(stranger, {**fitting, "odd": None, "unknown": 1})
    assert Part(bound=["a"]).bound == ("a",)  # type: ignore[arg-type]


def test_a_choice_among_numbers_stays_a_number() -> None:
    level = check("level", 2, Literal[1, 2])
    assert (level, type(level)) == (2, int)
    with pytest.raises(ValueError, match=r"level must be one of 1, 2, got 3; pick one\."):
        check("level", 3, Literal[1, 2])


def test_options_show_their_values_and_texts() -> None:
    shown = {name: (one.values, one.default, one.text) for name, one in options_of(factory).items()}
    assert shown == {
        "size": ("whole number at least 1", 2, "how many."),
        "share": ("number in [0, 1]", 0.5, "of what there is."),
        "name": ("left, right", "right", "one of two."),
        "sizes": ("list of whole numbers at least 1", (1,), "how many each."),
    }
    values = {name: one.values for name, one in options_of(stranger).items()}
    assert [values[name] for name in ("decay", "positive", "said", "text", "table", "code")] == [
        "number in [0, 1)",
        "number above 0",
        "true or false",
        "text",
        "mapping",
        "name or mapping",
    ]
    assert arguments_in("No section.") == {}
    assert arguments_in(
        "One.\n\nArgs:\n    a, *b: both.\n    c: more,\n        as said: here.\n\nRaises:\n    x: y."
    ) == {
        "a": "both.",
        "b": "both.",
        "c": "more, as said: here.",
    }
