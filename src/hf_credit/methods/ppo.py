"""PPO over many turns: generalized advantages of tokens, with a critic that reads the policy's context.

A[k] = sum_l (gamma lam)^l delta[k + l],    delta[k] = r[k] + gamma V[k + 1] - V[k]    (arXiv:1506.02438, eq. 16)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hf_credit.collectors import RolloutBatch, single_or_group
from hf_credit.critics.inputs import Places, policy_inputs
from hf_credit.methods import base
from hf_credit.methods.base import Credit, CriticTargets, Method, paper
from hf_credit.methods.groups import ragged_advantages, step_rewards
from hf_credit.options import Count, Options, Share, with_parts
from hf_credit.rollouts import Decision, Episode
from hf_credit.rollouts.method_context import CriticInput, MethodContext
from hf_credit.rollouts.rows import DecisionCredit

PAPER = paper("Proximal Policy Optimization Algorithms", arxiv="1707.06347")


@dataclass(frozen=True, kw_only=True)
class TokenAdvantages(Options):
    """`generalized_advantages` over the tokens of an episode's replies in all its turns.

    Tokens between replies, including a judge's, are skipped without a discount. A step's reward belongs to its last
    token, and the outcome minus the sum of rewards to the last token of the episode. The critic's targets are the
    advantages plus its predictions. Replies that are not trained on count in the advantages of the others, but get no
    credit. Failed episodes get no credit.

    Args:
        gamma: discount factor per action.
        lam: lambda of GAE.
        gae_level: an action is a `"token"`, or a whole `"decision"`, whose tokens share its advantage.
        whiten: whether advantages are normalised to mean 0 and variance 1 over the trained tokens of all processes.
        cut_value: the value after the last action of a cut episode (`Ending.CUT`): `"zero"`, or `"bootstrap"`, the
            critic's prediction for the next context, as in paper T3, Corollary 1.
    """

    gamma: Share = 1.0
    lam: Share = 1.0
    gae_level: Literal["token", "decision"] = "token"
    whiten: bool = False
    cut_value: Literal["zero", "bootstrap"] = "zero"

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        episodes = [collected.episodes[row] for row in base.without_errors(collected)]
        inputs = [policy_inputs(one, self.gae_level == "token", self.cut_value == "bootstrap") for one in episodes]
        predicted = iter(context.values([text for texts, _ in inputs for text in texts]))
        predictions = [[next(predicted) for _ in texts] for texts, _ in inputs]
        actions = [
            _actions(episode, places, values, self.gamma)
            for episode, (_, places), values in zip(episodes, inputs, predictions, strict=True)
        ]
        rewards, values = [one.rewards for one in actions], [one.values for one in actions]
        advantages = ragged_advantages(rewards, values, self.gamma, self.lam)
        targets = _critic_targets(inputs, predictions, advantages)
        if self.whiten:
            flat, tokens = itertools.chain(*advantages), itertools.chain(*(one.tokens for one in actions))
            rest = iter(base.whitened_over_processes([*flat], [*tokens], context).tolist())
            advantages = [[next(rest) for _ in row] for row in advantages]
        pairs: list[tuple[Decision, DecisionCredit]] = []
        for episode, of_episode, row in zip(episodes, actions, advantages, strict=True):
            for number, group in itertools.groupby(
                zip(of_episode.decisions, row, strict=True), key=lambda pair: pair[0]
            ):
                credits = tuple(credit for _, credit in group)
                if episode.decisions[number].trained:
                    pairs.append((episode.decisions[number], credits if self.gae_level == "token" else credits[0]))
        return Credit(decisions=base.mean_by_decision(pairs), critic_targets=[targets])


@dataclass(frozen=True, kw_only=True)
class _Actions:
    """The actions of an episode, in order: lists of one entry for each."""

    decisions: list[int] = field(default_factory=list)  # indices
    values: list[float] = field(default_factory=list)  # the critic's predictions before them
    rewards: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # numbers of trained ones


def _actions(episode: Episode, places: Places, predictions: Sequence[Sequence[float]], gamma: float) -> _Actions:
    actions = _Actions()
    number = 0
    for step, reward in zip(episode.steps, step_rewards(episode), strict=True):
        for decision in step:
            at = places.of_decisions[number]
            actions.decisions.extend([number] * len(at))
            actions.values.extend(predictions[text][index] for text, index in at)
            actions.rewards.extend([0.0] * len(at))
            actions.tokens.extend([decision.trained * len(decision.action_ids) // max(len(at), 1)] * len(at))
            number += 1
        if actions.rewards:  # a reward before the first action belongs to no action
            actions.rewards[-1] += reward
    if places.beyond is not None and actions.rewards:
        text, index = places.beyond
        actions.rewards[-1] += gamma * predictions[text][index]
    return actions


def _critic_targets(
    inputs: Sequence[tuple[Sequence[CriticInput], Places]],
    predictions: Sequence[Sequence[Sequence[float]]],
    advantages: Sequence[Sequence[float]],
) -> CriticTargets:
    """The critic's target before each action: the advantage plus its prediction."""
    texts: list[CriticInput] = []
    targets: list[tuple[float, ...]] = []
    values: list[tuple[float, ...]] = []
    for (of_episode, places), predicted, credits in zip(inputs, predictions, advantages, strict=True):
        target_at: list[dict[int, float]] = [{} for _ in of_episode]
        for (text, index), credit in zip(itertools.chain(*places.of_decisions), credits, strict=True):
            target_at[text][index] = credit + predicted[text][index]
        for one, value_at, target in zip(of_episode, predicted, target_at, strict=True):
            if target:  # the context after a cut has no target
                texts.append(CriticInput(ids=one.ids, at=tuple(one.at[index] for index in target)))
                targets.append(tuple(target.values()))
                values.append(tuple(value_at[index] for index in target))
    return CriticTargets(inputs=texts, targets=targets, values=values)


@with_parts
def ppo(group_size: Count = 1, estimator: TokenAdvantages = TokenAdvantages()) -> Method:
    """Returns the PPO method.

    Args:
        group_size: number of episodes per task row; they are not compared with each other.
    """
    return Method(
        name="ppo", collector=single_or_group(group_size), estimator=estimator, critics=("critic",), paper=PAPER
    )
