"""PCCC fidelity as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, pccc_fidelity


class PCCCFidelity(Measure, inputs={"predictions": "float64", "references": "float64"}):
    def _compute(self, predictions, references):
        return vars(pccc_fidelity(predictions, references))
