"""Overlap as a module of `evaluate`; the computation is hf-credit's."""

from .computation import CVT_RL, Measure, overlap


class Overlap(Measure, citation=CVT_RL, inputs={"predictions": "float64"}):
    """Whether continuations of one policy are informative about another: quantiles of the ratios of their
    probabilities, the clipped share, and the effective sample size.

    Args:
        predictions: the ratio of each continuation, before it is clipped.
        probabilities: the probability with which each step was drawn.
        low: the least ratio that is not clipped.
        high: the largest.
        floor: the least probability with which a step is drawn.

    Returns:
        median: of the ratios.
        p95: their 95th percentile.
        ratio_clipped: the share of ratios outside the clip.
        effective: the effective sample size as a share of the sample.
        selection_median: of the probabilities, NaN without any.
        selection_at_floor: the share of probabilities at the floor, NaN without any.
        n: how many ratios there were.

    Examples:
        >>> metric = evaluate.load("./overlap")
        >>> metric.compute(predictions=[1.0, 1.0, 1.0, 1.0])["effective"]
        1.0
    """

    def _compute(self, predictions, **options):
        return vars(overlap(predictions, **options))
