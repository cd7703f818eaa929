"""GSPO: the credit of GRPO, with a loss that uses the importance ratio of whole episodes."""

from __future__ import annotations

from hf_credit.collectors import Group
from hf_credit.methods.base import Method, paper
from hf_credit.methods.grpo import GroupScore
from hf_credit.options import GroupSize, with_parts

PAPER = paper("Group Sequence Policy Optimization", arxiv="2507.18071")


@with_parts
def gspo(group_size: GroupSize = 8, estimator: GroupScore = GroupScore(eps=1e-6)) -> Method:
    """Returns the GSPO method, whose loss has `importance_sampling_level="sequence"`."""
    return Method(name="gspo", collector=Group(size=group_size), estimator=estimator, sequence_ratio=True, paper=PAPER)
