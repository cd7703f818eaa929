"""Critic inputs from episodes."""

from __future__ import annotations

from hf_credit.critics.inputs import context_inputs, joint_histories, read_once
from hf_credit.rollouts import Decision, Ending, Episode
from hf_credit.rollouts.method_context import CriticInput


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


def test_inputs_that_extend_the_one_before_them_are_read_once_if_their_positions_differ() -> None:
    first, second, third = (1, 2), (1, 2, 3, 4), (1, 2, 3, 4, 5)
    joined = CriticInput(ids=third, at=(2, 4, 5))
    assert read_once(context_inputs([first, second, third])) == ([joined], [0, 0, 0])
    again, other = context_inputs([first, (2, 2, 3)])
    twice = context_inputs([first]) * 2
    assert read_once([*twice, other]) == ([again, again, other], [0, 1, 2])  # each may have a target of its own
    assert read_once([]) == ([], [])
