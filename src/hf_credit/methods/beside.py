"""Credit of several methods for the same rollouts."""

from __future__ import annotations

from dataclasses import replace

from hf_credit.collectors import RolloutBatch
from hf_credit.methods import Method, make
from hf_credit.methods.base import one_number
from hf_credit.rollouts import MethodContext

OTHERS = ("outcome_reward", "rloo", "turn_credit", "magrpo", "replay_loo", "verifiable_process")
"""Methods that need only the rollouts: neither a critic, a frozen copy nor further episodes."""


def credit_of_others(method: Method, collected: RolloutBatch, context: MethodContext) -> dict[str, dict[str, float]]:
    """Returns the credit of each decision, by method and id, for those of `OTHERS` that the rollouts suffice for.

    Methods differ in the scale of their credit: compare signs and orders, not sizes.

    Args:
        method: the method that collected the rollouts, bound to the Interaction; it is left out.
        collected: the rollouts of this process; estimators compare only these.
    """
    credits = {}
    for name in OTHERS:
        if name == method.name:
            continue
        try:
            other = replace(make(name), collector=method.collector).bind(context.interaction)
        except ValueError:  # the collector does not give what it needs
            continue
        credit = other.estimator(collected, context, other.memory).decisions
        numbers = {decision: one_number(value) for decision, value in credit.items()}
        credits[name] = {decision: value for decision, value in numbers.items() if value is not None}
    return credits
