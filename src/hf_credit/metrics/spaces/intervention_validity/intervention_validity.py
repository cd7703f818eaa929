"""Intervention validity as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, intervention_validity


class InterventionValidity(Measure, inputs={"predictions": "bool", "references": "string"}):
    def _compute(self, predictions, references, **options):
        found = intervention_validity(references, predictions, **options)
        names = ("invalid", "out_of_distribution", "proposals")
        return {f"{name}/{family}": getattr(own, name) for family, own in found.items() for name in names}
