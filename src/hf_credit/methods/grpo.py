"""GRPO: every decision of an episode gets its outcome, normalised by the mean and standard deviation of its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import group_advantages
from hf_credit.methods import base
from hf_credit.methods.base import Credit, paper
from hf_credit.methods.groups import OfGroups, of_groups
from hf_credit.options import Positive
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models", arxiv="2402.03300")


@dataclass(frozen=True, kw_only=True)
class GroupScore(OfGroups):
    """`group_advantages` of the outcomes of each instance. Failed episodes get no credit.

    Args:
        scale: centred outcomes are divided by the standard deviation of the `"group"`, by that of the `"batch"` over
            all processes, or not divided (`"none"`); TRL's `scale_rewards`.
        eps: added to the standard deviation; 1e-4 in TRL.
    """

    scale: Literal["group", "batch", "none"] = "group"
    eps: Positive = 1e-4

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows, instances = base.without_errors(collected), base.global_group_ids(context, collected)
        pairs, local = base.all_gather_with_slice(
            [(collected.episodes[row].outcome, instances[row]) for row in rows], context
        )
        outcomes = torch.tensor([outcome for outcome, _ in pairs], dtype=torch.float64)
        groups = torch.tensor([instance for _, instance in pairs], dtype=torch.long)
        advantages = group_advantages(outcomes, groups, self.scale, self.eps)[local]
        return Credit(decisions=base.broadcast_to_decisions(collected, base.scatter_rows(collected, rows, advantages)))


grpo = of_groups("grpo", GroupScore(), PAPER)
