"""Collaborations: which role speaks when, what it sees, and how the outcome is scored."""

from __future__ import annotations

from typing import Any

from hf_credit.collaborations.base import Collaboration, CollaborationState
from hf_credit.collaborations.graph import Event, Loop
from hf_credit.collaborations.scorers import Scorer
from hf_credit.options import check_options
from hf_credit.registry import Registry
from hf_credit.rollouts import Interaction

__all__ = ["COLLABORATIONS", "Collaboration", "CollaborationState", "Event", "Loop", "Scorer", "known", "make"]

COLLABORATIONS = {
    "agent": "hf_credit.agents.interaction:AgentInteraction",
    "graph": "hf_credit.collaborations.base:graph",
    "judged_puzzles": "hf_credit.collaborations.judged_puzzles:judged_puzzles",
    "hinted_relay": "hf_credit.collaborations.hinted_relay:hinted_relay",
    "reasoner_actor": "hf_credit.collaborations.think_solve:reasoner_actor",
    "relay": "hf_credit.collaborations.relay:relay",
    "sum_vote": "hf_credit.collaborations.sum_vote:sum_vote",
    "think_solve": "hf_credit.collaborations.think_solve:think_solve",
    "voting": "hf_credit.collaborations.voting:voting",
}

NAMED = Registry[Interaction[Any]](
    "collaboration",
    COLLABORATIONS,
    Interaction,
    "name a collaboration, or use it as an environment.",
    check=check_options,
    recorded=True,
)
make, known = NAMED.make, NAMED.known
