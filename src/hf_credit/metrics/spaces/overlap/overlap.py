"""Overlap as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, overlap


class Overlap(Measure, inputs={"predictions": "float64"}):
    def _compute(self, predictions, **options):
        return vars(overlap(predictions, **options))
