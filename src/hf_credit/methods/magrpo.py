"""MAGRPO: every decision of an episode gets its return minus the mean of its group (a baseline of paper C3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hf_credit.collectors import Group, RolloutBatch
from hf_credit.credit import full_mean, group_scaled
from hf_credit.methods.base import Credit, Method, compare_outcomes
from hf_credit.options import GroupSize, Options, Positive, with_parts
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class GroupMean(Options):
    """A = R - mean of R over the group (paper C3, Appendix H). Failed episodes get no credit.

    Args:
        normalise_credit: whether credit is divided by its standard deviation within the group.
        return_clip: returns are clipped to [-return_clip, return_clip].
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    normalise_credit: bool = False
    return_clip: Positive = 10.0

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        return Credit(decisions=compare_outcomes(collected, self._centred))

    def _centred(self, returns: Tensor, groups: Tensor) -> Tensor:
        centred = full_mean(returns.clamp(-self.return_clip, self.return_clip), groups)
        return group_scaled(centred, groups) if self.normalise_credit else centred


@with_parts
def magrpo(group_size: GroupSize = 8, estimator: GroupMean = GroupMean()) -> Method:
    """Returns the MAGRPO method."""
    return Method(name="magrpo", collector=Group(size=group_size), estimator=estimator)
