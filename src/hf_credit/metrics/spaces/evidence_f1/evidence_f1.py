"""Evidence F1 as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, evidence_f1


class EvidenceF1(Measure, inputs={"predictions": ["string"], "references": ["string"]}):
    def _compute(self, predictions, references, **options):
        return vars(evidence_f1(predictions, references, **options))
