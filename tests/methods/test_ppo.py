"""PPO over many turns, with numbers computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hf_credit import methods
from hf_credit.collectors import Group, Rollout, RolloutBatch, Single
from hf_credit.methods.ppo import TokenAdvantages
from hf_credit.rollouts import CriticInput, Decision, Ending, Episode, LocalContext, by_episode

OUTPUTS = {2: 0.2, 3: 0.5, 6: 0.4, 7: 0.9, 8: 0.3}  # by how many tokens have been read


class Critic:
    """A critic with the values in `OUTPUTS`, which records its inputs."""

    def __init__(self) -> None:
        self.asked: list[CriticInput] = []

    def __call__(self, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        self.asked = list(inputs)
        return [tuple(OUTPUTS[at] for at in one.at) for one in inputs]


def decision(context: Sequence[int], action: Sequence[int], **others: Any) -> Decision:
    return Decision(
        role="agent",
        state=None,
        context_ids=tuple(context),
        action_ids=tuple(action),
        logprobs=None,
        action_text="",
        **others,
    )


# A reply of two tokens, an observation of two, a reply of one.
FIRST, SECOND = decision((1, 2), (5, 6)), decision((1, 2, 5, 6, 7, 8), (9,))
GROWING = Episode(decisions=(FIRST, SECOND), outcome=1.0, ending=Ending.FINISHED)
CUT = replace(GROWING, outcome=0.0, ending=Ending.CUT, next_context=(1, 2, 5, 6, 7, 8, 9, 10))


def credited(*episodes: Episode, critic: Any = None, **options: Any) -> Any:
    samples = tuple(Rollout(episode=one, instance=0) for one in episodes)
    context = LocalContext(critics={"critic": critic or Critic()})
    credit = TokenAdvantages(**options)(RolloutBatch(rollouts=samples, rows=1), context, None)
    return SimpleNamespace(decisions=by_episode(episodes, credit.decisions), critic_targets=credit.critic_targets)


def approx(*decisions: Any) -> list[Any]:
    return [one if one is None else pytest.approx(one) for one in decisions]


def test_without_discount_a_token_gets_the_outcome_minus_its_value() -> None:
    assert credited(GROWING).decisions[0] == approx((0.8, 0.5), (0.6,))


def test_tokens_between_replies_are_not_discounted() -> None:
    # delta = .5 * .5 - .2, .5 * .4 - .5, 1 - .4, and .4 of the next advantage
    assert credited(GROWING, gamma=0.5, lam=0.8).decisions[0] == approx((0.026, -0.06), (0.6,))


def test_a_decision_can_be_the_action() -> None:
    assert credited(GROWING, gamma=0.5, lam=0.8, gae_level="decision").decisions[0] == approx(0.24, 0.6)


def test_the_last_token_of_a_step_has_its_reward_and_the_last_of_all_the_rest_of_the_outcome() -> None:
    paid = replace(GROWING, decisions=(replace(FIRST, reward=0.25), SECOND))
    # delta = .5 * .5 - .2, .25 + .5 * .4 - .5, .75 - .4
    assert credited(paid, gamma=0.5, lam=0.8).decisions[0] == approx((0.05 + 0.4 * 0.09, -0.05 + 0.4 * 0.35), (0.35,))


@pytest.mark.parametrize("level", ["token", "decision"])
def test_untrained_replies_do_not_change_other_credit_and_have_critic_targets(level: str) -> None:
    masked = replace(GROWING, decisions=(FIRST, replace(SECOND, trained=False)))
    whole, rest = (credited(one, gamma=0.5, lam=0.8, gae_level=level) for one in (GROWING, masked))
    assert rest.decisions == [[whole.decisions[0][0], None]]
    assert rest.critic_targets == whole.critic_targets


def test_whitening_counts_only_trained_tokens() -> None:
    masked = replace(GROWING, decisions=(FIRST, replace(SECOND, trained=False)))
    assert credited(masked, whiten=True).decisions[0] == approx((0.7071067, -0.7071067), None)  # of .8 and .5


def test_replies_of_a_judge_are_not_actions() -> None:
    judged = replace(GROWING, decisions=(FIRST, replace(SECOND, trained=False, observed=True)))
    critic = Critic()
    found = credited(judged, critic=critic, gamma=0.5, lam=0.8)
    assert found.decisions[0] == approx((0.25, 0.5), None)
    assert critic.asked == [CriticInput(ids=(1, 2, 5), at=(2, 3))]


def test_the_value_after_a_cut_is_0_or_that_of_the_next_context() -> None:
    assert credited(CUT, gamma=0.5, lam=0.8).decisions[0][1] == pytest.approx((-0.4,))
    found = credited(CUT, gamma=0.5, lam=0.8, cut_value="bootstrap")
    assert found.decisions[0][1] == pytest.approx((0.5 * 0.3 - 0.4,))
    (lesson,) = found.critic_targets
    assert lesson.inputs == [CriticInput(ids=CUT.next_context, at=(2, 3, 6))]  # nothing is learned of what never came
    (targets,) = lesson.targets
    assert targets == pytest.approx([0.2 + 0.05 + 0.4 * (-0.3 - 0.1), 0.5 - 0.3 - 0.1, 0.15])
    finished = replace(GROWING, next_context=None)
    assert credited(finished, cut_value="bootstrap").decisions == credited(finished).decisions


def test_a_growing_context_is_one_critic_input_and_the_critic_learns_the_return() -> None:
    critic = Critic()
    found = credited(GROWING, critic=critic)
    assert critic.asked == [CriticInput(ids=(1, 2, 5, 6, 7, 8), at=(2, 3, 6))]
    (lesson,) = found.critic_targets
    assert [*lesson.targets[0]] == pytest.approx([1.0, 1.0, 1.0])
    assert lesson.values == [(0.2, 0.5, 0.4)]


def test_contexts_that_do_not_extend_each_other_are_separate_critic_inputs() -> None:
    apart = replace(GROWING, decisions=(FIRST, decision((3, 4, 5), (6, 7, 8, 9))))
    critic = Critic()
    found = credited(replace(apart, decisions=(FIRST, decision((3, 4, 5), ()))), critic=critic)
    assert critic.asked == [CriticInput(ids=(1, 2, 5), at=(2, 3))]
    assert found.decisions[0] == approx((0.8, 0.5), None)
    credited(replace(apart, decisions=(FIRST, decision((3, 4), (6, 7)))), critic=critic)
    assert critic.asked == [CriticInput(ids=(1, 2, 5), at=(2, 3)), CriticInput(ids=(3, 4, 6), at=(2, 3))]


@pytest.mark.parametrize("level", ["token", "decision"])
def test_whitening_counts_every_token_once_and_does_not_change_targets(level: str) -> None:
    lost = replace(GROWING, outcome=0.0, decisions=tuple(replace(one, id=one.id + "'") for one in GROWING.decisions))
    plain, white = (credited(GROWING, lost, whiten=whiten, gae_level=level) for whiten in (False, True))
    tokens = [
        value
        for own in white.decisions
        for credit, one in zip(own, GROWING.decisions, strict=True)
        for value in (credit if isinstance(credit, tuple) else [credit] * len(one.action_ids))
    ]
    assert sum(tokens) == pytest.approx(0, abs=1e-9)
    assert sum(value**2 for value in tokens) / 5 == pytest.approx(1)
    assert white.critic_targets == plain.critic_targets


def test_failed_episodes_and_those_without_a_reply_get_no_credit() -> None:
    nothing = Episode(decisions=(), outcome=0.0, ending=Ending.TRUNCATED)
    failed = replace(GROWING, ending=Ending.ERROR)
    found = credited(nothing, failed)
    assert found.decisions == [[], [None, None]]
    assert [*found.critic_targets[0].inputs] == []


def test_a_group_of_one_is_a_group() -> None:
    assert isinstance(methods.make("ppo").collector, Single)
    assert methods.make("ppo", group_size=4).collector == Group(size=4)


def test_gspo_credits_as_grpo_does(hand: SimpleNamespace) -> None:
    episodes = [hand.episode(hand.decision(), outcome=outcome) for outcome in (0.0, 1.0, 1.0, 0.0)]
    gspo = methods.make("gspo", group_size=4)
    assert gspo.sequence_ratio
    assert hand.credits(gspo.estimator, *episodes) == [[-0.866], [0.866], [0.866], [-0.866]]
    assert hand.credits(gspo.estimator, *episodes, instances=(0, 0, 1, 2)) == [[-0.707], [0.707], [0.0], [0.0]]
