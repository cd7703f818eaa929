"""What a central critic reads, and what it makes of outcomes."""

from __future__ import annotations

import pytest

from hf_credit.critics.readings import decision_advantages, joint_histories
from hf_credit.rollouts import Decision, Ending, Episode


def decision(context: tuple[int, ...], action: tuple[int, ...]) -> Decision:
    return Decision(role="agent", state=None, context_ids=context, action_ids=action, logprobs=None, action_text="")


def test_it_reads_what_every_role_was_given_and_said() -> None:
    talk = Episode(decisions=(decision((1, 2), (3,)), decision((4, 5), (6,))), outcome=1.0, ending=Ending.FINISHED)
    assert joint_histories(talk) == [(1, 2), (1, 2, 3, 4, 5)]


def test_it_reads_a_conversation_that_grows_once() -> None:
    game = Episode(
        decisions=(decision((1, 2), (3,)), decision((1, 2, 3, 4), (5,))), outcome=1.0, ending=Ending.FINISHED
    )
    assert joint_histories(game) == [(1, 2), (1, 2, 3, 4)]


def test_without_discount_an_advantage_is_the_outcome_beyond_the_value() -> None:
    assert decision_advantages([1.0, 0.0], [[0.25, 0.5], [0.75]], 1.0, 1.0) == [[0.75, 0.5], [-0.75]]


def test_without_trace_an_advantage_is_the_change_in_value() -> None:
    (first,) = decision_advantages([1.0], [[0.25, 0.5]], 0.5, 0.0)
    assert first == pytest.approx([0.5 * 0.5 - 0.25, 1.0 - 0.5])


def test_an_episode_without_decisions_has_no_advantages() -> None:
    assert decision_advantages([1.0], [[]], 1.0, 1.0) == [[]]
    assert decision_advantages([], [], 1.0, 1.0) == []
