"""The free-rider index as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, free_rider_index


class FreeRiderIndex(Measure, inputs={"predictions": "float64", "references": "float64"}):
    def _compute(self, predictions, references):
        return {"free_rider_index": free_rider_index(predictions, references)}
