from __future__ import annotations

import dataclasses
import json

import pytest

from hf_credit.rollouts import Decision, Ending, Episode


def decision(action_ids):
    return Decision(role="agent", state=None, context_ids=(1, 2), action_ids=action_ids, logprobs=None, action_text="")


def test_generated_tokens_are_those_of_the_replies():
    episode = Episode(decisions=(decision((3, 4, 5)), decision(()), decision((6,))), outcome=1, ending=Ending.FINISHED)
    assert episode.generated_tokens == 4
    assert Episode(decisions=(), outcome=0, ending=Ending.ERROR).generated_tokens == 0


def test_an_ending_is_a_string():
    said = ["finished", "truncated", "cut", "turn_limit", "invalid_action", "error"]
    assert [str(ending) for ending in Ending] == said
    assert json.dumps({"ending": Ending.TURN_LIMIT}) == '{"ending": "turn_limit"}'


def test_decisions_and_episodes_are_values():
    assert decision((3,)) == decision((3,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        decision((3,)).reward = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        Episode(decisions=(), outcome=0, ending=Ending.ERROR).outcome = 1


def test_without_step_numbers_decisions_of_different_events_in_one_state_are_a_step():
    state, later = object(), object()
    made = [("a", state), ("b", state), ("a", later), ("a", later), ("b", state)]
    decisions = tuple(
        Decision(role=role, state=where, context_ids=(1,), action_ids=(2,), logprobs=None, action_text="")
        for role, where in made
    )
    steps = Episode(decisions=decisions, outcome=0.0, ending=Ending.FINISHED).steps
    assert [[decision.role for decision in step] for step in steps] == [["a", "b"], ["a"], ["a"], ["b"]]
    assert tuple(decision for step in steps for decision in step) == decisions


def test_decisions_with_equal_step_numbers_are_a_step():
    made = [("a", 0), ("b", 0), ("a", 1), ("b", 2), ("c", 2)]
    decisions = [dataclasses.replace(decision(()), event=event, step=step) for event, step in made]
    same, apart = object(), [object() for _ in made]
    for states in ([same] * 5, apart):
        of_states = [dataclasses.replace(one, state=state) for one, state in zip(decisions, states, strict=True)]
        steps = Episode(decisions=tuple(of_states), outcome=0.0, ending=Ending.FINISHED).steps
        assert [[one.event for one in step] for step in steps] == [["a", "b"], ["a"], ["b", "c"]]
