"""Constraint violation as a module of `evaluate`; the computation is hf-credit's."""

from .computation import CVT_RL, Measure, constraint_violation


class ConstraintViolation(Measure, citation=CVT_RL, inputs={"predictions": "float64"}):
    """Whether a cost stays under its limit: the mean over episodes of what each one cost, and how far that is above
    the limit.

    Args:
        predictions: what each episode cost, the discounted sum of the costs of its steps.
        limit: the most that the mean may be.

    Returns:
        cost: the mean.
        violation: how far it is above the limit, 0 where it is not.
        episodes_above: the share of episodes that cost more than the limit.
        n: how many episodes there were.

    Examples:
        >>> metric = evaluate.load("./constraint_violation")
        >>> metric.compute(predictions=[0.0, 1.0], limit=0.25)["violation"]
        0.25
    """

    def _compute(self, predictions, limit=0.0):
        return vars(constraint_violation(predictions, limit))
