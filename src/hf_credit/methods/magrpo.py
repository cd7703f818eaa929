"""MAGRPO: every decision of an episode gets its return minus the mean of its group (a baseline of paper C3)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import full_mean, group_scaled
from hf_credit.methods.base import Credit, compare_outcomes
from hf_credit.methods.groups import OfGroups, of_groups
from hf_credit.options import Positive
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class GroupMean(OfGroups):
    """A = R - mean of R over the group (paper C3, Appendix H). Failed episodes get no credit.

    Args:
        normalise_credit: whether credit is divided by its standard deviation within the group.
        return_clip: returns are clipped to [-return_clip, return_clip].
    """

    normalise_credit: bool = False
    return_clip: Positive = 10.0

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        return Credit(decisions=compare_outcomes(collected, self._centred))

    def _centred(self, returns: Tensor, groups: Tensor) -> Tensor:
        centred = full_mean(returns.clamp(-self.return_clip, self.return_clip), groups)
        return group_scaled(centred, groups) if self.normalise_credit else centred


magrpo = of_groups("magrpo", GroupMean())
