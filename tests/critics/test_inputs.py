"""What a central critic reads, and the values it gives there."""

from __future__ import annotations

from hf_credit.critics.inputs import joint_histories
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
