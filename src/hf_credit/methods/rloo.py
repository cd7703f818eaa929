"""RLOO: every decision of an episode gets its outcome minus the mean of the other episodes of its group."""

from __future__ import annotations

from dataclasses import dataclass

from hf_credit.credit import leave_one_out
from hf_credit.methods.base import paper
from hf_credit.methods.groups import OfEpisodes, of_groups

PAPER = paper(
    "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
    arxiv="2402.14740",
)


@dataclass(frozen=True, kw_only=True)
class OthersMean(OfEpisodes):
    """`leave_one_out` of the outcomes of each instance. Failed episodes get no credit."""

    advantages = staticmethod(leave_one_out)


rloo = of_groups("rloo", OthersMean(), PAPER)
