"""Checks of settings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hf_credit.validators import finite_number, one_of, whole_number


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.5, 2.0, "3", True, None, [1]])
def test_a_value_that_is_not_a_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^size must be a whole number, got .*; correct it\.$"):
        whole_number("size", value, 1)
    with pytest.raises(ValueError, match=r"^size must be a whole number from 1 to 4, got .*; correct it\.$"):
        whole_number("size", value, 1, 4)


def test_a_whole_number_in_its_range_is_itself() -> None:
    assert [whole_number("size", value, 1) for value in (1, 10**30, np.int64(7))] == [1, 10**30, 7]
    with pytest.raises(ValueError, match=r"^size must be at least 1, got 0; raise it\.$"):
        whole_number("size", 0, 1)
    for value in (0, 5):
        with pytest.raises(ValueError, match=rf"^size must be a whole number from 1 to 4, got {value}; correct it\.$"):
            whole_number("size", value, 1, 4)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "0.5", False, None, 1j])
def test_what_is_no_finite_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^eps must be a finite number, got .*; correct it\.$"):
        finite_number("eps", value)


def test_a_finite_number_in_its_range_is_itself() -> None:
    assert (finite_number("eps", 3), finite_number("eps", -0.5), finite_number("eps", 0, least=0)) == (3.0, -0.5, 0.0)
    with pytest.raises(ValueError, match=r"^eps must be at least 0, got -1; raise it\.$"):
        finite_number("eps", -1, least=0)
    for value in (0, -0.5):
        with pytest.raises(ValueError, match=rf"^eps must be above 0, got {value}; raise it\.$"):
            finite_number("eps", value, above=0)
    with pytest.raises(ValueError, match=r"^eps must be in \[0, 1\], got 1.5; correct it\.$"):
        finite_number("eps", 1.5, least=0, most=1)
    with pytest.raises(ValueError, match=r"^eps must be at most 1, got 2; lower it\.$"):
        finite_number("eps", 2, above=0, most=1)


def test_a_name_is_one_of_those_that_there_are() -> None:
    assert one_of("level", "token", ("token", "turn")) == "token"
    for value in ("word", None, 1):
        with pytest.raises(ValueError, match=rf"^level must be one of token, turn, got {value!r}; pick one\.$"):
            one_of("level", value, ("token", "turn"))
    with pytest.raises(ValueError, match=r"got 'tokens'; did you mean 'token'\?$"):
        one_of("level", "tokens", ("token", "turn"))
