"""Collaborations: who speaks when, who sees what, and who says what it was worth."""

from __future__ import annotations

from typing import Any

from hf_credit.collaborations.base import Collaboration, CollaborationState
from hf_credit.collaborations.graph import Event, Loop
from hf_credit.collaborations.scorers import Scorer
from hf_credit.registry import build

__all__ = ["COLLABORATIONS", "Collaboration", "CollaborationState", "Event", "Loop", "Scorer", "make"]

COLLABORATIONS = {
    "reasoner_actor": "hf_credit.collaborations.reasoner_actor:reasoner_actor",
    "relay": "hf_credit.collaborations.relay:relay",
}


def make(name: str, **options: Any) -> Collaboration:
    """The collaboration called `name`, with its options: `make("relay", size=10)`.

    One that needs a scorer takes it by name as well, as a recipe must:
    `make("reasoner_actor", domain="math", scorer="my_package.scoring:exact_match")`. The name is imported from what is
    installed here, so it must be code that you trust (see `hf_credit.collaborations.scorers.resolve_scorer`).

    Raises:
        ValueError: the name, an option or an option's value is not possible, in one sentence that names the rule,
            the value and the remedy.
    """
    collaboration: Collaboration = build("collaboration", COLLABORATIONS, name, options)
    return collaboration
