"""Vote contribution as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, vote_contribution


class VoteContribution(Measure, inputs={"predictions": ["string"], "references": "string"}):
    def _compute(self, predictions, references, **options):
        return vars(vote_contribution(predictions, references, **options))
