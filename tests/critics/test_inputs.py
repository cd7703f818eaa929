"""Critic inputs from episodes."""

from __future__ import annotations

from hf_credit.critics.inputs import joint_histories
from hf_credit.rollouts import Decision, Ending, Episode


def decision(context: tuple[int, ...], action: tuple[int, ...]) -> Decision:
    return Decision(role="agent", state=None, context_ids=context, action_ids=action, logprobs=None, action_text="")


def test_a_joint_history_has_the_contexts_and_replies_of_all_roles() -> None:
    talk = Episode(decisions=(decision((1, 2), (3,)), decision((4, 5), (6,))), outcome=1.0, ending=Ending.FINISHED)
    assert joint_histories(talk) == [(1, 2), (1, 2, 3, 4, 5)]


def test_a_joint_history_does_not_repeat_a_growing_context() -> None:
    game = Episode(
        decisions=(decision((1, 2), (3,)), decision((1, 2, 3, 4), (5,))), outcome=1.0, ending=Ending.FINISHED
    )
    assert joint_histories(game) == [(1, 2), (1, 2, 3, 4)]
