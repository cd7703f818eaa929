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


def test_an_ending_is_a_word_in_logs_and_files():
    assert [str(ending) for ending in Ending] == ["finished", "truncated", "turn_limit", "invalid_action", "error"]
    assert json.dumps({"ending": Ending.TURN_LIMIT}) == '{"ending": "turn_limit"}'


def test_decisions_and_episodes_are_values():
    assert decision((3,)) == decision((3,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        decision((3,)).reward = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        Episode(decisions=(), outcome=0, ending=Ending.ERROR).outcome = 1
