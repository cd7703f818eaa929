"""Credit fidelity as a module of `evaluate`; the computation is hf-credit's."""

from .computation import C3, Measure, credit_fidelity


class CreditFidelity(Measure, citation=C3, inputs={"predictions": ["float64"], "references": ["float64"]}):
    """How well the credit that a method assigns to single decisions ranks them by their advantages: Spearman's rank
    correlation between credits and target advantages, pooled over buckets of alternatives to one decision, ties
    averaged.

    Args:
        predictions: of each bucket, the credit of each candidate; finite numbers.
        references: of each bucket, the target advantage of each candidate.

    Returns:
        credit_fidelity: in [-1, 1]; NaN where it is not defined.
        status: "ok", or a caveat.
        candidates, buckets: how many were pooled.
        alone: buckets left out since they hold fewer than two candidates.

    Examples:
        >>> metric = evaluate.load("./credit_fidelity")
        >>> found = metric.compute(predictions=[[0.1, 0.2], [0.3, 0.4]], references=[[-1.0, 3.0], [2.0, 5.0]])
        >>> round(found["credit_fidelity"], 3), found["status"]
        (0.8, 'ok')
    """

    def _compute(self, predictions, references):
        found = credit_fidelity(predictions, references)
        return {
            "credit_fidelity": found.rho,
            "status": str(found.status),
            "candidates": found.candidates,
            "buckets": found.buckets,
            "alone": found.alone,
        }
