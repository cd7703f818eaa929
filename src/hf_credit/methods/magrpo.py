"""MAGRPO: every decision of an episode gets its return minus the mean of its group (a baseline of paper C3).

A[i] = R[i] - mean_group R
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hf_credit.credit import full_mean, group_scaled
from hf_credit.methods.groups import OfEpisodes, of_groups
from hf_credit.options import Positive


@dataclass(frozen=True, kw_only=True)
class GroupMean(OfEpisodes):
    """A = R - mean of R over the group (paper C3, Appendix H). Failed episodes get no credit.

    Args:
        normalise_credit: whether credit is divided by its standard deviation within the group.
        return_clip: returns are clipped to [-return_clip, return_clip].
    """

    normalise_credit: bool = False
    return_clip: Positive = 10.0

    def advantages(self, outcomes: Tensor, groups: Tensor, /) -> Tensor:
        centred = full_mean(outcomes.clamp(-self.return_clip, self.return_clip), groups)
        return group_scaled(centred, groups) if self.normalise_credit else centred


magrpo = of_groups("magrpo", GroupMean())
