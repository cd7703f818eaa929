"""Belief deviation as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, belief_deviation


class BeliefDeviation(Measure, inputs={"predictions": ["float64"], "references": ["float64"]}):
    def _compute(self, predictions, references, **options):
        return vars(belief_deviation(predictions, references, **options))
