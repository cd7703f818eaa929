"""GSPO: the credit of GRPO, with a loss that uses the importance ratio of whole episodes."""

from __future__ import annotations

from hf_credit.methods.base import paper
from hf_credit.methods.groups import of_groups
from hf_credit.methods.grpo import GroupScore

PAPER = paper("Group Sequence Policy Optimization", arxiv="2507.18071")

gspo = of_groups("gspo", GroupScore(eps=1e-6), PAPER, sequence_ratio=True)
