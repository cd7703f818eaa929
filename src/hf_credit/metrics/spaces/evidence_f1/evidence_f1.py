"""Evidence F1 as a module of `evaluate`; the computation is hf-credit's."""

from .computation import CVT_RL, Measure, evidence_f1


class EvidenceF1(Measure, citation=CVT_RL, inputs={"predictions": ["string"], "references": ["string"]}):
    """Whether answers cite the documents that support them: the F1 of cited and supporting documents, averaged over
    answers.

    Args:
        predictions: of each answer, the documents it cites.
        references: of each answer, the documents that support it, at least one.
        entailment: how surely the evidence entails each answer, in [0, 1].

    Returns:
        f1, precision, recall: means over answers.
        reward: the mean of the harmonic mean of F1 and entailment; NaN without entailment.
        n: how many answers there were.

    Examples:
        >>> metric = evaluate.load("./evidence_f1")
        >>> round(metric.compute(predictions=[["a", "b"]], references=[["a"]])["f1"], 4)
        0.6667
    """

    def _compute(self, predictions, references, **options):
        return vars(evidence_f1(predictions, references, **options))
