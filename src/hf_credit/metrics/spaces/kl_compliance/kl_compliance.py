"""KL compliance as a module of `evaluate`; the computation is hf-credit's."""

from .computation import CVT_RL, Measure, kl_compliance


class KLCompliance(Measure, citation=CVT_RL, inputs={"predictions": "float64"}):
    """The divergence of updated policies from the old policy, and how often it is within a radius.

    Args:
        predictions: of each update, the mean over its tokens of KL(old || new), in nats.
        radius: the most that it should be.

    Returns:
        mean: over updates.
        p99: their 99th percentile.
        within: the share of updates within the radius.
        n: how many updates there were.

    Examples:
        >>> metric = evaluate.load("./kl_compliance")
        >>> metric.compute(predictions=[0.005, 0.02], radius=0.01)["within"]
        0.5
    """

    def _compute(self, predictions, radius=0.025):
        return vars(kl_compliance(predictions, radius))
