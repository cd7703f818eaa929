"""Collaborations: which role speaks when, what it sees, and how the outcome is scored."""

from __future__ import annotations

from typing import Any

from hf_credit.collaborations.base import Collaboration, CollaborationState
from hf_credit.collaborations.graph import Event, Loop
from hf_credit.collaborations.scorers import Scorer
from hf_credit.options import check_options
from hf_credit.registry import find, names, refuse_options, remember
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


def make(name: str, **options: Any) -> Interaction[Any]:
    """Returns a collaboration, such as `make("relay", size=10)`.

    A scorer may be given by name, as in a recipe:
    `make("reasoner_actor", domain="math", scorer="my_package.scoring:exact_match")`. The name is imported, so it must
    be code that you trust (see `hf_credit.collaborations.scorers.resolve_scorer`).

    Args:
        name: one of `known()`, or the `"package.module:factory"` of a function that returns an Interaction, which is
            imported and must be code that you trust.

    Raises:
        ValueError: the name, an option or its value is invalid.
    """
    factory = find("collaboration", COLLABORATIONS, name)
    refuse_options("collaboration", factory, name, options)
    check_options(factory, options)
    collaboration = factory(**options)
    if not isinstance(collaboration, Interaction):
        raise ValueError(
            f"a collaboration must be a hf_credit.rollouts.Interaction, got a {type(collaboration).__name__} from "
            f"{name!r}; name a collaboration, or use it as an environment."
        )
    remember(collaboration, name, factory, **options)
    return collaboration


def known() -> list[str]:
    """Returns the names of this library's collaborations and of entry points in `hf_credit.collaborations`."""
    return names("collaboration", COLLABORATIONS)
