"""Intervention validity as a module of `evaluate`; the computation is hf-credit's."""

from .computation import CVT_RL, Measure, intervention_validity


class InterventionValidity(Measure, citation=CVT_RL, inputs={"predictions": "bool", "references": "string"}):
    """How many proposed replacements of a step fail the gate, and how many of the others are unlikely under the policy
    itself, by family of interventions.

    Args:
        predictions: whether each proposal passed the gate.
        references: the family of each.
        kinds: of the action of each, such as "read".
        logprobs: of each, its mean log-probability per token, in nats, under the policy that continues the episode;
            None if unknown.
        sampled_kinds, sampled_logprobs: the same of replies that the policy sampled.
        quantile: below which a log-probability is unusual.

    Returns:
        invalid/FAMILY: the share that failed the gate.
        out_of_distribution/FAMILY: the share of the others that is unusual; NaN where none can be judged.
        proposals/FAMILY: how many there were.

    Examples:
        >>> metric = evaluate.load("./intervention_validity")
        >>> found = metric.compute(predictions=[True, False], references=["deletion", "deletion"])
        >>> found["invalid/deletion"]
        0.5
    """

    def _compute(self, predictions, references, **options):
        found = intervention_validity(references, predictions, **options)
        names = ("invalid", "out_of_distribution", "proposals")
        return {f"{name}/{family}": getattr(own, name) for family, own in found.items() for name in names}
