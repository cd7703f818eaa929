"""Influence as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, influence, influence_by_chance


class Influence(Measure, inputs={"predictions": [["string"]]}):
    def _compute(self, predictions, **options):
        found = influence(predictions, **options)
        return {
            "influence": found.mean,
            "by_chance": influence_by_chance(predictions, **options),
            "buckets": found.buckets,
            "alone": found.alone,
        }
