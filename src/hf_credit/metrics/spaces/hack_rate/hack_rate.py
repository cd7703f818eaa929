"""Hack rate as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, hack_rate


class HackRate(Measure, inputs={"predictions": "bool"}):
    def _compute(self, predictions, **options):
        return vars(hack_rate(predictions, **options))
