"""The contributions of steps to the outcome (paper CVT-RL, eqs. 4 to 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.credit import (
    continuation_ratio,
    contributions,
    doubly_robust_values,
    family_mean,
    pad_to_matrix,
    sequential_values,
)
from hf_credit.methods.base import CriticTargets
from hf_credit.methods.cvt.audited_steps import counterfactual, replacement_of
from hf_credit.methods.cvt.audits import outcome
from hf_credit.methods.cvt.drawn_steps import PARAPHRASE, DrawnStep, OutcomePredictions, audited_branches, numbers
from hf_credit.rollouts import Episode
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class StepContributions:
    """The contribution of each drawn step, the mean over families of interventions."""

    method: Any  # the `ConstrainedCounterfactual` whose options it has

    def steps(self, collected: RolloutBatch, episodes: Sequence[Episode]) -> list[DrawnStep]:
        """Returns the drawn steps, and all others if the estimator uses predictions for them."""
        own: dict[str, dict[str, list[Rollout]]] = {}
        q: dict[str, float] = {}  # the probability of drawing each
        for family in self.method.families:
            for rollout in collected.of_kind(counterfactual(family)):
                own.setdefault(rollout.source, {}).setdefault(family, []).append(rollout)
                q[rollout.source] = replacement_of(rollout).probability
        every = self.method.selection == "augmented" or self.method.estimator == "process"
        return [
            DrawnStep(row=row, turn=turn, probability=q.get(name, 1.0), drawn=name in own, branches=own.get(name, {}))
            for row, episode in enumerate(episodes)
            for turn, name in enumerate(one.id for one in episode.decisions)
            if name in own or (every and own)
        ]

    def __call__(
        self, steps: Sequence[DrawnStep], episodes: Sequence[Episode], context: MethodContext
    ) -> tuple[dict[tuple[int, int], float], list[CriticTargets]]:
        """Returns the contribution of each step, by row and turn, and the targets of the outcome model."""
        ratios, by_decision = self._ratios(steps, episodes, context)
        along = self.method.estimator == "sequential"
        model = None
        if self.method.estimator != "ips":
            model = OutcomePredictions(steps, episodes, tuple(self.method.families), context, along)
        critic_targets = [] if model is None else [model.critic_targets(self._outcome, by_decision)]
        if not any(step.drawn for step in steps):
            if self.method.estimator == "process":
                context.gather([(0.0, 0)])
            return {}, critic_targets
        outcomes = numbers([self._outcome(episodes[step.row]) for step in steps])
        probabilities = numbers([step.probability for step in steps])
        drawn = torch.tensor([step.drawn for step in steps])
        predicted = torch.zeros_like(outcomes) if model is None else model.of_steps
        if self.method.estimator == "process":
            gathered = context.gather([(predicted.sum().item(), len(predicted))])
            mean = sum(one for one, _ in gathered) / max(sum(count for _, count in gathered), 1)
            credits = zip(steps, (predicted - mean).tolist(), strict=True)
            return {(step.row, step.turn): value for step, value in credits}, critic_targets
        if self.method.estimator == "model":
            values = predicted
        elif self.method.estimator == "sequential":
            assert model is not None
            values = sequential_values(outcomes, *model.along(by_decision))
        else:
            values = doubly_robust_values(outcomes, predicted, ratios)
        if self.method.estimator != "model":
            values = self._pooled(values, steps)
        differences = None
        if self.method.selection == "augmented":
            differences = torch.zeros_like(outcomes) if model is None else model.advantages
        estimates = []
        for family in self.method.families:
            branches = [audited_branches(step, family) for step in steps]
            replaced, mask = pad_to_matrix([[self._outcome(one.episode) for one in own] for own in branches])
            if self.method.estimator == "model":
                assert model is not None
                replaced, mask = pad_to_matrix([[model.of_branches[id(one)] for one in own] for own in branches])
            estimates.append(
                contributions(values, replaced, mask, probabilities, drawn, self.method.selection, differences)
            )
        by_family = torch.stack(estimates, dim=1)
        for index, family in enumerate(self.method.families):
            of_drawn = by_family[drawn, index]
            context.mean(f"contribution/{family}", of_drawn[~of_drawn.isnan()].tolist())
        mean = family_mean(by_family, numbers(list(self.method.families.values())))
        context.mean("contribution/unknown", mean[drawn].isnan().double().tolist())
        known = [(step, value) for step, value in zip(steps, mean.tolist(), strict=True) if not math.isnan(value)]
        return {(step.row, step.turn): value for step, value in known}, critic_targets

    def _outcome(self, episode: Episode) -> float:
        value = outcome(episode, self.method.contribution_to)
        if not 0 <= value <= 1:
            raise ValueError(f"the outcome Y of contributions must be in [0, 1], got {value}; scale it.")
        return value

    def _pooled(self, values: Tensor, steps: Sequence[DrawnStep]) -> Tensor:
        """The mean of each step's value and the outcomes of its paraphrases, which continue from the same action."""
        outcomes = [[self._outcome(one.episode) for one in audited_branches(step, PARAPHRASE)] for step in steps]
        paraphrased, mask = pad_to_matrix(outcomes)
        return (values + paraphrased.sum(dim=1)) / (1 + mask.sum(dim=1))

    def _ratios(
        self, steps: Sequence[DrawnStep], episodes: Sequence[Episode], context: MethodContext
    ) -> tuple[Tensor, list[list[float]]]:
        """The ratio of the probabilities of what followed each step under the frozen policy and the current one (eq.
        5), and that of each later decision, both from forward passes and not from a sampler."""
        later = [episodes[step.row].decisions[step.turn + 1 :] for step in steps]
        if self.method.own_policy:
            return torch.ones(len(steps), dtype=torch.float64), [[1.0] * len(own) for own in later]
        needed = {one.id: one for own in later for one in own}
        target = dict(zip(needed, context.logprobs(list(needed.values()), "frozen"), strict=True))
        behaviour = dict(zip(needed, context.logprobs(list(needed.values()), "current"), strict=True))
        by_decision = [[math.exp(sum(target[one.id]) - sum(behaviour[one.id])) for one in own] for own in later]
        target_logprobs, mask = pad_to_matrix([[value for one in own for value in target[one.id]] for own in later])
        logprobs, _ = pad_to_matrix([[value for one in own for value in behaviour[one.id]] for own in later])
        ratios = continuation_ratio(target_logprobs, logprobs, mask, 0.0, math.inf)
        low, high = self.method.ratio_low, self.method.ratio_high
        gathered = sorted(value for own in context.gather([ratios.tolist()]) for value in own)
        if gathered:
            clipped = sum(not low <= value <= high for value in gathered)
            context.log("overlap/ratio_median", gathered[len(gathered) // 2])
            context.log("overlap/ratio_95", gathered[int(0.95 * (len(gathered) - 1))])
            context.log("overlap/ratio_clipped", clipped / len(gathered))
            context.log(
                "overlap/effective",
                sum(gathered) ** 2 / max(sum(value**2 for value in gathered), 1e-300) / len(gathered),
            )
        bounded = [
            [min(max(value, self.method.ratio_low), self.method.ratio_high) for value in own] for own in by_decision
        ]
        return ratios.clamp(self.method.ratio_low, self.method.ratio_high), bounded
