"""GRPO: every decision of an episode gets its outcome, normalised by the mean and standard deviation of its group.

A[i] = (R[i] - mean_group R) / (std_group R + eps)    (arXiv:2402.03300, section 4.1.2)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from hf_credit.credit import group_advantages
from hf_credit.methods.base import paper
from hf_credit.methods.groups import OfEpisodes, of_groups
from hf_credit.options import Positive

PAPER = paper("DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models", arxiv="2402.03300")


@dataclass(frozen=True, kw_only=True)
class GroupScore(OfEpisodes):
    """`group_advantages` of the outcomes of each instance. Failed episodes get no credit.

    Args:
        scale: centred outcomes are divided by the standard deviation of the `"group"`, by that of the `"batch"` over
            all processes, or not divided (`"none"`); TRL's `scale_rewards`.
        eps: added to the standard deviation; 1e-4 in TRL.
    """

    over_processes: ClassVar[bool] = True

    scale: Literal["group", "batch", "none"] = "group"
    eps: Positive = 1e-4

    def advantages(self, outcomes: Tensor, groups: Tensor, /) -> Tensor:
        return group_advantages(outcomes, groups, self.scale, self.eps)


grpo = of_groups("grpo", GroupScore(), PAPER)
