from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.cli.options import given as those_given
from hf_credit.cli.options import named_oracle, parse_options
from hf_credit.oracles import spec


def test_values_are_numbers_truths_or_text() -> None:
    assert parse_options(["size=4", "share=0.5", "solve=true", "blanks=null", "agent=first", "a=b=c", "empty="]) == {
        "size": 4,
        "share": 0.5,
        "solve": True,
        "blanks": None,
        "agent": "first",
        "a": "b=c",
        "empty": "",
    }


def test_no_options_are_none() -> None:
    assert parse_options(None) == {}


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.booleans() | st.integers() | st.none()))
def test_json_values_are_read(options: dict[str, object]) -> None:
    assert parse_options([f"{name}={json.dumps(value)}" for name, value in options.items()]) == options


@pytest.mark.parametrize("pair", ["size", "=4", "", "="])
def test_what_is_no_pair_is_refused(pair: str) -> None:
    with pytest.raises(ValueError, match="must be name=value"):
        parse_options([pair])


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="got 'size' twice"):
        parse_options(["size=4", "size=6"])


def test_given_drops_none() -> None:
    assert those_given(one=None, two=0, three=False) == {"two": 0, "three": False}


def test_options_without_an_oracle_are_refused() -> None:
    assert named_oracle(None, None) is None
    assert type(named_oracle("mcts", ["simulations=3"])).__name__ == "MCTSOracle"
    described = '{"name": "mcts", "options": {"simulations": 3}}'
    assert spec(named_oracle(described, None)) == spec(named_oracle("mcts", ["simulations=3"]))
    assert spec(named_oracle(described, ["simulations=4"]))[1]["simulations"] == 4
    with pytest.raises(ValueError, match="--oracle-option needs --oracle, got"):
        named_oracle(None, ["simulations=3"])
