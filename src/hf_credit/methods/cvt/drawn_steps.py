"""Drawn steps, and an outcome model's predictions for them and their replacements (paper CVT-RL, Appendix A.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch
from torch import Tensor

from hf_credit.collectors import Rollout
from hf_credit.methods.base import CriticTargets
from hf_credit.methods.cvt.audited_steps import counterfactual, replacement_of
from hf_credit.methods.cvt.audits import verified_success
from hf_credit.methods.turns import pad_to_matrix
from hf_credit.rollouts import Decision, Ending, Episode
from hf_credit.rollouts.method_context import CriticInput, MethodContext

PARAPHRASE = "paraphrase"
"""The family that does not change the action, so that its outcomes estimate the value of the step."""


@dataclass(frozen=True, kw_only=True)
class DrawnStep:
    """A decision, and its replacements.

    Attributes:
        row: index of its episode, among the credited ones.
        turn: its index in the episode.
        probability: of being drawn.
        drawn: whether it was.
        branches: by family, the rollouts from there.
    """

    row: int
    turn: int
    probability: float = 1.0
    drawn: bool = True
    branches: Mapping[str, Sequence[Rollout]] = field(default_factory=dict)


class OutcomePredictions:
    """The predictions of the last update's outcome model for steps and their replacements.

    Args:
        steps: with the actions to read.
        episodes: that they are in.
        families: of interventions, each of which has a mark in the text, by its index.
        context: calls it, on all processes at the same time.
        along: whether the later decisions are read as well.
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
        self.branches = [one for step in steps for own in step.branches.values() for one in own]
        given = {
            id(one): decision.context_ids
            for step, decision in zip(steps, decisions, strict=True)
            for own in step.branches.values()
            for one in own
        }
        marks = {
            counterfactual(name): context.chat.encode(f" [{number} {name}]") for number, name in enumerate(families, 1)
        }
        self._own = [
            CriticInput(ids=ids, at=(len(one.context_ids), len(ids))) for one in decisions for ids in [_read(one)]
        ]
        self._replaced = [
            CriticInput(ids=ids, at=(len(ids),))
            for one in self.branches
            for ids in [(*given[id(one)], *replacement_of(one).reply, *marks[one.kind])]
        ]
        self._later = {
            one.id: CriticInput(ids=_read(one), at=(len(one.context_ids), len(_read(one))))
            for step in steps
            for one in episodes[step.row].decisions[step.turn + 1 :]
            if along
        }
        self._predicted = context.values([*self._own, *self._replaced, *self._later.values()], "outcome")
        first, second = len(self._own), len(self._own) + len(self._replaced)
        self._before = [one[0] for one in self._predicted[:first]]
        self.of_steps = numbers([one[1] for one in self._predicted[:first]])
        replaced = zip(self.branches, self._predicted[first:second], strict=True)
        self.of_branches = {id(one): values[0] for one, values in replaced}
        self._predicted_later = dict(zip(self._later, self._predicted[second:], strict=True))

    @property
    def advantages(self) -> Tensor:
        """The prediction after each step minus that before it: an estimate of its contribution."""
        return self.of_steps - numbers(self._before)

    def along(self, ratios: Sequence[Sequence[float]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The predictions before and after each later decision of each step, their ratios, and a mask."""
        later = [self.episodes[step.row].decisions[step.turn + 1 :] for step in self.steps]
        before, mask = pad_to_matrix([[self._predicted_later[one.id][0] for one in own] for own in later])
        of, _ = pad_to_matrix([[self._predicted_later[one.id][1] for one in own] for own in later])
        return before, of, pad_to_matrix(ratios)[0], mask

    def critic_targets(self, outcome: Callable[[Episode], float], ratios: Sequence[Sequence[float]]) -> CriticTargets:
        """Outcomes of the frozen copy, which the model predicts: E[Y | h, a, mu, k] (paper CVT-RL, section 3.2).

        For an unchanged step these are the outcomes of its paraphrases. The policy's own continuation counts only if
        the copy plays it with the same probability: a clipped ratio does not convert outcomes of another policy to
        those of the copy.

        Args:
            outcome: Y of an episode.
            ratios: of each decision after each step, as for `along`.
        """
        examples: list[tuple[CriticInput, list[float], tuple[float, ...]]] = []
        later: dict[str, float] = {}
        for step, text, values, own in zip(self.steps, self._own, self._predicted, ratios, strict=False):
            if step.drawn:
                episode = self.episodes[step.row]
                y = outcome(episode)
                outcomes = [outcome(one.episode) for one in audited_branches(step, PARAPHRASE)]
                examples.append((text, [*outcomes, y] if _equal(own) else outcomes, values))
                after = enumerate(episode.decisions[step.turn + 1 :])
                later |= {one.id: y for at, one in after if one.id in self._later and _equal(own[at:])}
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
    """The branches of a family at a step whose episodes `is_audited`."""
    return [one for one in step.branches.get(family, ()) if is_audited(one.episode)]


def is_audited(episode: Episode) -> bool:
    """Whether an episode ended without an error and was audited to its end."""
    return episode.ending != Ending.ERROR and verified_success(episode) is not None


def _equal(ratios: Sequence[float]) -> bool:
    """Whether two policies play on with the same probability."""
    return all(math.isclose(ratio, 1) for ratio in ratios)


def _read(decision: Decision) -> tuple[int, ...]:
    return decision.context_ids + decision.action_ids


def numbers(values: Sequence[float]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float64)
