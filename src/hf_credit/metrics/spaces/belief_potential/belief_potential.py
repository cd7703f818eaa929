"""Belief potential as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, belief_potential


class BeliefPotential(
    Measure, inputs={"predictions": ["string"], "references": {"truth": "string", "possible": ["string"]}}
):
    def _compute(self, predictions, references, **options):
        found = belief_potential(
            predictions, [one["possible"] for one in references], [one["truth"] for one in references], **options
        )
        return {
            "potential": found.potential,
            "oracle_potential": found.oracle_potential,
            "distance": found.distance,
            "states": len(found.by_state),
        }
