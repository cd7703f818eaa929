"""Within-context variance as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, context_variance


class ContextVariance(Measure, inputs={"predictions": ["float64"]}):
    def _compute(self, predictions):
        found = context_variance(predictions)
        return {
            "context_variance": found.within,
            "between_contexts": found.between,
            "buckets": found.buckets,
            "alone": found.alone,
        }
