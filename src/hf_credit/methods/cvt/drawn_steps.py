"""Drawn steps, and the outcome model's predictions for them and their replacements (paper CVT-RL, Appendix A.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch
from torch import Tensor

from hf_credit.collectors import Rollout
from hf_credit.credit import pad_to_matrix
from hf_credit.methods.base import CriticTargets
from hf_credit.methods.cvt.audited_steps import counterfactual, replacement_of
from hf_credit.methods.cvt.audits import verified_success
from hf_credit.rollouts import Decision, Ending, Episode
from hf_credit.rollouts.method_context import CriticInput, MethodContext

PARAPHRASE = "paraphrase"
"""The family that keeps the action, so that its outcomes estimate the value of the step."""


@dataclass(frozen=True, kw_only=True)
class DrawnStep:
    """A decision, and the rollouts from its replacements."""

    row: int  # the index of its episode among the credited ones
    turn: int  # its index in the episode
    probability: float = 1.0  # the probability of drawing it
    drawn: bool = True  # whether it was drawn
    # the rollouts from its replacements, by family
    branches: Mapping[str, Sequence[Rollout]] = field(default_factory=dict)


class OutcomePredictions:
    """The predictions of the outcome model, before this update, for steps and their replacements.

    Args:
        families: all families of interventions; an input ends with the index and name of the family.
        context: calls the model, on all processes at the same time.
        along: whether to predict for all later decisions, too.
    """

    def __init__(
        self,
        steps: Sequence[DrawnStep],
        episodes: Sequence[Episode],
        families: Sequence[str],
        context: MethodContext,
        along: bool,
    ) -> None:
        self.steps, self.episodes = steps, episodes
        decisions = [episodes[step.row].decisions[step.turn] for step in steps]
        replaced = [
            (decision, one)
            for step, decision in zip(steps, decisions, strict=True)
            for own in step.branches.values()
            for one in own
        ]
        self.branches = [one for _, one in replaced]
        marks = {
            counterfactual(name): context.chat.encode(f" [{number} {name}]") for number, name in enumerate(families, 1)
        }
        self._own = list(map(_input, decisions))
        self._replaced = [
            CriticInput(ids=ids, at=(len(ids),))
            for decision, one in replaced
            for ids in [(*decision.context_ids, *replacement_of(one).reply, *marks[one.kind])]
        ]
        self._later = {
            one.id: _input(one) for step in steps for one in episodes[step.row].decisions[step.turn + 1 :] if along
        }
        self._predicted = context.values([*self._own, *self._replaced, *self._later.values()], "outcome")
        first, second = len(self._own), len(self._own) + len(self._replaced)
        self._before = [one[0] for one in self._predicted[:first]]
        self.of_steps = numbers([one[1] for one in self._predicted[:first]])
        of_replaced = zip(self.branches, self._predicted[first:second], strict=True)
        self.of_branches = {id(one): values[0] for one, values in of_replaced}
        self._predicted_later = dict(zip(self._later, self._predicted[second:], strict=True))

    @property
    def advantages(self) -> Tensor:
        """The prediction after each step minus that before it, an estimate of its contribution."""
        return self.of_steps - numbers(self._before)

    def along(self, ratios: Sequence[Sequence[float]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns the predictions before and after each decision that follows a step, their ratios, and a mask.

        Each is of shape (steps, decisions).
        """
        later = [self.episodes[step.row].decisions[step.turn + 1 :] for step in self.steps]
        before, mask = pad_to_matrix([[self._predicted_later[one.id][0] for one in own] for own in later])
        after, _ = pad_to_matrix([[self._predicted_later[one.id][1] for one in own] for own in later])
        return before, after, pad_to_matrix(ratios)[0], mask

    def critic_targets(self, outcome: Callable[[Episode], float], ratios: Sequence[Sequence[float]]) -> CriticTargets:
        """Returns the outcomes of the frozen copy, which the model predicts: E[Y | h, a, mu, k] (paper CVT-RL, section
        3.2).

        For an unchanged step these are the outcomes of its paraphrases. The policy's own continuation counts only if
        the copy plays it with the same probability, as a clipped ratio does not correct the outcomes of another
        policy.

        Args:
            ratios: the ratio of each decision after each step, as for `along`.
        """
        examples: list[tuple[CriticInput, list[float], tuple[float, ...]]] = []
        later: dict[str, float] = {}
        for step, text, values, own in zip(self.steps, self._own, self._predicted, ratios, strict=False):
            if step.drawn:
                episode = self.episodes[step.row]
                y = outcome(episode)
                outcomes = [outcome(one.episode) for one in audited_branches(step, PARAPHRASE)]
                examples.append((text, [*outcomes, y] if _on_policy(own) else outcomes, values))
                after = enumerate(episode.decisions[step.turn + 1 :])
                later |= {one.id: y for at, one in after if one.id in self._later and _on_policy(own[at:])}
        for one, text in zip(self.branches, self._replaced, strict=True):
            outcomes = [outcome(one.episode)] if is_audited(one.episode) else []
            examples.append((text, outcomes, (self.of_branches[id(one)],)))
        examples += [(self._later[name], [y], self._predicted_later[name]) for name, y in later.items()]
        known = [one for one in examples if one[1]]
        return CriticTargets(
            inputs=[text for text, _, _ in known],
            targets=[(fmean(outcomes),) * len(values) for _, outcomes, values in known],
            values=[values for _, _, values in known],
            critic="outcome",
        )


def audited_branches(step: DrawnStep, family: str) -> list[Rollout]:
    """Returns the branches of a family at a step that have an audited episode, as for `is_audited`."""
    return [one for one in step.branches.get(family, ()) if is_audited(one.episode)]


def is_audited(episode: Episode) -> bool:
    """Returns whether an episode ended without an error and has a verified success."""
    return episode.ending != Ending.ERROR and verified_success(episode) is not None


def _on_policy(ratios: Sequence[float]) -> bool:
    return all(math.isclose(ratio, 1) for ratio in ratios)


def _input(decision: Decision) -> CriticInput:
    ids = decision.context_ids + decision.action_ids
    return CriticInput(ids=ids, at=(len(decision.context_ids), len(ids)))


def numbers(values: Sequence[float]) -> Tensor:
    """Returns the values as a float64 tensor."""
    return torch.tensor(list(values), dtype=torch.float64)
