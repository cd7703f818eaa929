"""PPO over many turns: generalized advantages of every token, with a critic that reads the policy's context."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from hf_credit.collectors import RolloutBatch, single_or_group
from hf_credit.credit import generalized_advantages, whitened
from hf_credit.critics.readings import Places, own_readings
from hf_credit.methods.base import (
    Credit,
    CriticTargets,
    DecisionCredit,
    Method,
    all_gather_with_slice,
    mean_by_decision,
    paper,
    without_errors,
)
from hf_credit.methods.turns import pad_to_matrix, step_rewards
from hf_credit.options import Count, Options, Share, with_parts
from hf_credit.rollouts import Decision, Episode
from hf_credit.rollouts.method_context import CriticInput, MethodContext

PAPER = paper("Proximal Policy Optimization Algorithms", arxiv="1707.06347")


@dataclass(frozen=True, kw_only=True)
class TokenAdvantages(Options):
    """`generalized_advantages` over the tokens of an episode's replies, one after another through all its turns.

    Tokens between the replies, including a judge's, are skipped without a discount. Each step's reward belongs to its
    last token, and the outcome minus all rewards to the last token of the episode. The critic's targets are the
    advantages plus its predictions. Replies that are not trained on take part in all of this, and only their own
    advantages are dropped: the others have those of the whole episode. Failed episodes get no credit.

    Args:
        gamma: discount from one action to the next.
        lam: decay of the trace.
        gae_level: an action is a `"token"`, or a whole `"decision"`, whose tokens then share its advantage.
        whiten: whether advantages are normalised to mean 0 and variance 1 over the trained tokens of all processes.
        cut_value: the value after the last action of a cut episode (`Ending.CUT`): `"zero"`, or `"bootstrap"`, the
            critic's prediction for the next context. Only the latter is the estimator of paper T3, Corollary 1.

    Raises:
        ValueError: an option is out of range.
    """

    gamma: Share = 1.0
    lam: Share = 1.0
    gae_level: Literal["token", "decision"] = "token"
    whiten: bool = False
    cut_value: Literal["zero", "bootstrap"] = "zero"

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        episodes = [collected.episodes[row] for row in without_errors(collected)]
        read = [own_readings(one, self.gae_level == "token", self.cut_value == "bootstrap") for one in episodes]
        predicted = iter(context.values([reading for readings, _ in read for reading in readings]))
        predictions = [[next(predicted) for _ in readings] for readings, _ in read]
        walks = [
            _walk(one, places, values, self.gamma)
            for one, (_, places), values in zip(episodes, read, predictions, strict=True)
        ]
        advantages = _advantages(walks, self.gamma, self.lam)
        targets = _critic_targets(read, predictions, advantages)
        if self.whiten:
            advantages = _whitened(walks, advantages, context)
        given: list[tuple[Decision, DecisionCredit]] = []
        for episode, walk, of_actions in zip(episodes, walks, advantages, strict=True):
            for number, pairs in itertools.groupby(
                zip(walk.owners, of_actions, strict=True), key=lambda pair: pair[0]
            ):
                credits = tuple(credit for _, credit in pairs)
                if episode.decisions[number].trained:
                    given.append((episode.decisions[number], credits if self.gae_level == "token" else credits[0]))
        return Credit(decisions=mean_by_decision(given), critic_targets=[targets])


@dataclass(frozen=True, kw_only=True)
class _Walk:
    """The actions of an episode, in order; all lists have the same length.

    Attributes:
        owners: which decision each belongs to.
        values: before each.
        rewards: of each.
        tokens: number of trained tokens of each.
    """

    owners: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


def _walk(episode: Episode, places: Places, predictions: Sequence[Sequence[float]], gamma: float) -> _Walk:
    walk = _Walk()
    number = 0
    for step, reward in zip(episode.steps, step_rewards(episode), strict=True):
        for decision in step:
            at = places.of_decisions[number]
            walk.owners.extend([number] * len(at))
            walk.values.extend(predictions[reading][index] for reading, index in at)
            walk.rewards.extend([0.0] * len(at))
            walk.tokens.extend([decision.trained * len(decision.action_ids) // max(len(at), 1)] * len(at))
            number += 1
        if walk.rewards:  # what is paid before the first action is nobody's
            walk.rewards[-1] += reward
    if places.beyond is not None and walk.rewards:
        reading, index = places.beyond
        walk.rewards[-1] += gamma * predictions[reading][index]
    return walk


def _advantages(walks: Sequence[_Walk], gamma: float, lam: float) -> list[list[float]]:
    values, mask = pad_to_matrix([walk.values for walk in walks])
    rewards, _ = pad_to_matrix([walk.rewards for walk in walks])
    advantages = generalized_advantages(rewards, values, mask, gamma, lam).tolist()
    return [row[: len(walk.values)] for row, walk in zip(advantages, walks, strict=True)]


def _whitened(
    walks: Sequence[_Walk], advantages: Sequence[Sequence[float]], context: MethodContext
) -> list[list[float]]:
    pairs = [pair for walk, row in zip(walks, advantages, strict=True) for pair in zip(row, walk.tokens, strict=True)]
    all_pairs, local = all_gather_with_slice(pairs, context)
    everyone = torch.tensor(all_pairs, dtype=torch.float64).reshape(-1, 2)
    rest = iter(whitened(everyone[:, 0], everyone[:, 1])[local].tolist())
    return [[next(rest) for _ in row] for row in advantages]


def _critic_targets(
    read: Sequence[tuple[Sequence[CriticInput], Places]],
    predictions: Sequence[Sequence[Sequence[float]]],
    advantages: Sequence[Sequence[float]],
) -> CriticTargets:
    """The critic's target before each action: the advantage plus its prediction."""
    inputs: list[CriticInput] = []
    targets: list[tuple[float, ...]] = []
    values: list[tuple[float, ...]] = []
    for (readings, places), predicted, credits in zip(read, predictions, advantages, strict=True):
        wanted: list[dict[int, float]] = [{} for _ in readings]
        for (reading, index), credit in zip(itertools.chain(*places.of_decisions), credits, strict=True):
            wanted[reading][index] = credit + predicted[reading][index]
        for one, known, target in zip(readings, predicted, wanted, strict=True):
            if target:  # of the context after a cut nothing is learned
                inputs.append(CriticInput(ids=one.ids, at=tuple(one.at[index] for index in target)))
                targets.append(tuple(target.values()))
                values.append(tuple(known[index] for index in target))
    return CriticTargets(inputs=inputs, targets=targets, values=values)


@with_parts
def ppo(group_size: Count = 1, estimator: TokenAdvantages = TokenAdvantages()) -> Method:
    """The method.

    Args:
        group_size: episodes of each task row; they are not compared with each other.
    """
    return Method(
        name="ppo",
        collector=single_or_group(group_size),
        estimator=estimator,
        critics=("critic",),
        paper=PAPER,
    )
