"""The credit of other methods for the rollouts of one method."""

from __future__ import annotations

from dataclasses import replace

from hf_credit.collectors import RolloutBatch
from hf_credit.methods import Method, make
from hf_credit.methods.base import one_number
from hf_credit.rollouts import MethodContext

OTHERS = ("outcome_reward", "rloo", "turn_credit", "magrpo", "replay_loo", "verifiable_process")
"""Methods that need only the rollouts: no critic, no frozen copy, no further episodes."""


def credit_of_others(method: Method, collected: RolloutBatch, context: MethodContext) -> dict[str, dict[str, float]]:
    """The credit of each decision by each of `OTHERS`, if the rollouts have what its estimator needs.

    Each method has its own scale of credit, so compare signs and orders, not sizes.

    Args:
        method: whose collector played, bound to the Interaction; left out itself.
        collected: of this process; only its rollouts are compared.
        context: has the Interaction and the chat.
    """
    found = {}
    for name in OTHERS:
        if name == method.name:
            continue
        try:
            other = replace(make(name), collector=method.collector).bind(context.interaction)
        except ValueError:  # it needs what these rollouts do not have
            continue
        credit = other.estimator(collected, context, other.memory).decisions
        numbers = {decision: one_number(value) for decision, value in credit.items()}
        found[name] = {decision: value for decision, value in numbers.items() if value is not None}
    return found
