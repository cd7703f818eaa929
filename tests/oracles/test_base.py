"""The oracle protocol, on a small oracle."""

from __future__ import annotations

import pytest

from hf_credit.environments import State
from hf_credit.environments.actions import tag
from hf_credit.oracles import Oracle, ValidSetOracle


class Evens(ValidSetOracle[State]):
    """Even seeds have two valid moves, odd ones none."""

    name = "evens"

    def valid_actions(self, state):
        return frozenset() if state.seed % 2 else frozenset({"move 2", "move 4"})


class Duck:
    def valid_actions(self, state):
        return frozenset()

    def score(self, state, action):
        return 0.5


@pytest.mark.parametrize(
    ("action", "score"),
    [
        ("move 2", 1.0),
        ("move 4", 1.0),
        ("move 3", 0.0),
        ("", 0.0),
        ("move 2 4", 0.0),
        (tag("move 2"), 1.0),
        (f"perhaps {tag('move 3')}, no: <ACTION>\tMove  4 </Action>!", 1.0),
        (f"{tag('move 2')} {tag('move 3')}", 0.0),
        ("  MOVE   2\n", 1.0),
        ("<action>move 2", 0.0),
    ],
)
def test_a_member_of_the_valid_set_scores_one_and_anything_else_zero(action, score):
    result = Evens().score(State(seed=0), action)
    assert (result, type(result)) == (score, float)


def test_nothing_scores_where_nothing_is_valid():
    assert Evens().score(State(seed=1), "move 2") == 0.0


def test_any_object_with_the_two_methods_is_an_oracle():
    assert isinstance(Duck(), Oracle)
    assert isinstance(Evens(), Oracle)
    assert not isinstance(State(seed=0), Oracle)


def test_a_valid_set_oracle_must_say_its_set():
    with pytest.raises(TypeError, match="abstract"):
        ValidSetOracle()
