"""GSPO: the credit of GRPO, with a loss that uses the importance ratio of whole episodes.

A as in `grpo`,    ratio of an episode = exp(mean over its tokens of log pi / pi_old)    (arXiv:2507.18071, eq. 7)
"""

from __future__ import annotations

from hf_credit.methods.base import paper
from hf_credit.methods.groups import of_groups
from hf_credit.methods.grpo import GroupScore

PAPER = paper("Group Sequence Policy Optimization", arxiv="2507.18071")

gspo = of_groups("gspo", GroupScore(eps=1e-6), PAPER, sequence_ratio=True)
