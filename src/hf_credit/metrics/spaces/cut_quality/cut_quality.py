"""Cut quality as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, cut_quality


class CutQuality(Measure, inputs={"predictions": ["bool"], "references": ["float64"]}):
    def _compute(self, predictions, references, **options):
        return vars(cut_quality(predictions, references, **options))
