"""Credit fidelity as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, credit_fidelity


class CreditFidelity(Measure, inputs={"predictions": ["float64"], "references": ["float64"]}):
    def _compute(self, predictions, references):
        found = credit_fidelity(predictions, references)
        return {
            "credit_fidelity": found.rho,
            "status": str(found.status),
            "candidates": found.candidates,
            "buckets": found.buckets,
            "alone": found.alone,
        }
