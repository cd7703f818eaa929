"""Belief potential as a module of `evaluate`; the computation is hf-credit's."""

from .computation import T3, Measure, belief_potential


class BeliefPotential(
    Measure, citation=T3, inputs={"predictions": ["string"], "references": {"truth": "string", "possible": ["string"]}}
):
    """How far an agent's belief is from the truth, compared with what it could know: -log of the share of its true
    answers, the log of the number of remaining hypotheses, both in nats, and the L1 distance of the two beliefs.

    Args:
        predictions: at each state, the answers that the agent gave when it was asked there.
        references: at each state, `truth`, and `possible`: every hypothesis that agrees with what was observed.
        alpha: pseudo-count of every hypothesis that is possible or was named.

    Returns:
        potential: of the agent's belief, in nats; infinite where alpha is 0 and the truth was never named.
        oracle_potential: of a uniform belief over what is possible, in nats.
        distance: L1 between the two, in [0, 2].
        states: how many were measured.

    Examples:
        >>> metric = evaluate.load("./belief_potential")
        >>> left = {"truth": "124", "possible": ["124", "423"]}
        >>> metric.compute(predictions=[["124", "423"]], references=[left], alpha=0)["distance"]
        0.0
    """

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
