"""MAPPO: generalized advantages with a central critic that reads all messages (a baseline of paper C3, Appendix H).

A[k] = sum_l (gamma lam)^l delta[k + l],    delta[k] = r[k] + gamma V[k + 1] - V[k],    k over decisions
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from hf_credit.collectors import RolloutBatch
from hf_credit.critics.inputs import context_inputs, joint_histories
from hf_credit.methods.base import Credit, CriticTargets, mean_by_decision, without_errors
from hf_credit.methods.groups import of_groups, ragged_advantages
from hf_credit.options import Options, Positive, Share
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class DecisionAdvantages(Options):
    """`generalized_advantages` over decisions, with the outcome as the reward of the last one (paper C3, eq. 4).

    The critic's targets are the advantages plus its predictions. Failed episodes, and those without an outcome, get no
    credit.

    Args:
        gamma: discount factor per decision.
        lam: lambda of GAE.
        return_clip: outcomes are clipped to [-return_clip, return_clip].
    """

    gamma: Share = 1.0
    lam: Share = 1.0
    return_clip: Positive = 10.0

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        known = (collected.episodes[row] for row in without_errors(collected))
        episodes = [episode for episode in known if not math.isnan(episode.outcome)]
        played = [zip(episode.decisions, joint_histories(episode), strict=True) for episode in episodes]
        actions = [[(one, history) for one, history in of_episode if not one.observed] for of_episode in played]
        inputs = context_inputs([history for of_episode in actions for _, history in of_episode])
        predicted = context.values(inputs)
        rest = (value for (value,) in predicted)
        values = [[next(rest) for _ in of_episode] for of_episode in actions]
        outcomes = [max(-self.return_clip, min(self.return_clip, episode.outcome)) for episode in episodes]
        rewards = [[*[0.0] * (len(row) - 1), last][: len(row)] for row, last in zip(values, outcomes, strict=True)]
        advantages = ragged_advantages(rewards, values, self.gamma, self.lam)
        credits = [*itertools.chain(*advantages)]
        targets = [(credit + value,) for credit, (value,) in zip(credits, predicted, strict=True)]
        decisions = mean_by_decision(zip((one for one, _ in itertools.chain(*actions)), credits, strict=True))
        critic_targets = [CriticTargets(inputs=inputs, targets=targets, values=predicted)]
        return Credit(decisions=decisions, critic_targets=critic_targets)


mappo = of_groups("mappo", DecisionAdvantages(), critics=("critic",))
