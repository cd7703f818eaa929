from __future__ import annotations

from fractions import Fraction

import pytest

from hf_credit.environments import ENVIRONMENTS
from hf_credit.oracles import ORACLES
from hf_credit.registry import build

NUMBERS = {"whole": "builtins:int", "fraction": "fractions:Fraction"}


def test_a_name_and_its_options_build_the_class() -> None:
    assert build("number", NUMBERS, "fraction", {"numerator": 3, "denominator": 6}) == Fraction(1, 2)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"number must be one of fraction, whole, got 'complex'; pick one of these\."):
        build("number", NUMBERS, "complex", {})


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"number 'fraction' takes the options numerator, denominator.*, got 'sign'; "
    ):
        build("number", NUMBERS, "fraction", {"numerator": 3, "sign": -1})


@pytest.mark.parametrize(("kind", "classes"), [("environment", ENVIRONMENTS), ("oracle", ORACLES)])
def test_every_listed_name_builds_without_options_and_knows_its_name(kind: str, classes: dict[str, str]) -> None:
    for name in classes:
        assert build(kind, classes, name, {}).name == name
