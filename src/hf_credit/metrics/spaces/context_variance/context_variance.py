"""Within-context variance as a module of `evaluate`; the computation is hf-credit's."""

from .computation import C3, Measure, context_variance


class ContextVariance(Measure, citation=C3, inputs={"predictions": ["float64"]}):
    """The variance of credit among the alternatives to one decision, averaged over buckets, and the variance of its
    mean between buckets, which a baseline removes.

    Args:
        predictions: of each bucket, the credit of each candidate; finite numbers.

    Returns:
        context_variance: the mean over buckets of the population variance inside a bucket.
        between_contexts: the population variance of the buckets' means.
        buckets: how many were measured.
        alone: buckets left out since they hold fewer than two candidates.

    Examples:
        >>> metric = evaluate.load("./context_variance")
        >>> metric.compute(predictions=[[0.0, 1.0], [2.0, 4.0]])["context_variance"]
        0.625
    """

    def _compute(self, predictions):
        found = context_variance(predictions)
        return {
            "context_variance": found.within,
            "between_contexts": found.between,
            "buckets": found.buckets,
            "alone": found.alone,
        }
