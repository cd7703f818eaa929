"""States are values."""

import dataclasses
import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments import make
from hf_credit.environments.base import Environment, State, Transition

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)


@dataclass(frozen=True, kw_only=True)
class Position(State):
    board: object = ()
    turn: int = 0


POSITIONS = st.builds(Position, seed=st.integers(0, 2**64 - 1), board=PLAIN, turn=st.integers())


@given(POSITIONS)
def test_a_state_is_restored_from_its_json(state):
    back = Position.from_json(state.to_json())
    assert back == state
    assert hash(back) == hash(state)
    assert repr(back) == repr(state)  # `1`, `1.0` and `True` are equal but not the same


@given(POSITIONS)
def test_the_json_is_one_line_of_ascii(state):
    text = state.to_json()
    assert text.isascii()
    assert text.splitlines() == [text]


def test_the_json_names_every_field():
    state = Position(seed=3, board=((1, "x"), None))
    assert json.loads(state.to_json()) == {"seed": 3, "status": "active", "board": [[1, "x"], None], "turn": 0}


def test_a_state_begins_active():
    assert Position(seed=0).status == "active"


def test_a_state_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Position(seed=0).turn = 1


def test_states_differ_if_any_field_does():
    states = {Position(seed=seed, board=board) for seed in (0, 1) for board in ((), (0,)) for _ in range(2)}
    assert len(states) == 4


def test_unknown_fields_are_refused():
    with pytest.raises(ValueError, match="colour"):
        Position.from_json('{"seed":0,"colour":"red"}')


def test_each_transition_has_its_own_empty_info():
    first, second = (
        Transition(state=Position(seed=0), observation="", reward=0.0, terminated=False) for _ in range(2)
    )
    assert first == second
    assert first.info == {}
    assert first.info is not second.info


def test_an_environment_must_have_every_method():
    class Rules(Environment):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Rules()


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("circuit_decoding", {"inputs": 14}, "inputs of a state .* must be a whole number from 1 to 4, got 14"),
        ("circuit_decoding", {"hidden": [1] * 6}, "at most 100000 answers, got 6 circuits of 10 candidates"),
        ("circuit_decoding", {"hidden": [11, 1]}, "a hidden circuit must be a whole number from 1 to 10, got 11"),
        ("evidence", {"most": 10**6}, "most of a state .* must be a whole number from 1 to 9999, got 1000000"),
        ("guess_numbers", {"digits": 10, "symbols": 10}, "digits of a state .* from 1 to 5, got 10"),
        ("tic_tac_toe", {"board": "." * 16}, "board of a state .* must be of a length in \\[9, 9\\], got 16"),
    ],
)
def test_a_state_of_others_that_would_take_for_ever_is_refused(name, changed, message):
    environment = make(name)
    state = environment.initial_state(environment.sample_task(0), 0)
    with pytest.raises(ValueError, match=message):
        type(state).from_json(json.dumps({**json.loads(state.to_json()), **changed}))
