"""KL compliance as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, kl_compliance


class KLCompliance(Measure, inputs={"predictions": "float64"}):
    def _compute(self, predictions, radius=0.025):
        return vars(kl_compliance(predictions, radius))
