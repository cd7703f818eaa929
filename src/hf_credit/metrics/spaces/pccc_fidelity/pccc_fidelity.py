"""PCCC fidelity as a module of `evaluate`; the computation is hf-credit's."""

from .computation import CVT_RL, Measure, pccc_fidelity


class PCCCFidelity(Measure, citation=CVT_RL, inputs={"predictions": "float64", "references": "float64"}):
    """How accurate the estimated contributions of steps are, compared with exact ones, by enumeration or many
    continuations.

    Args:
        predictions: the estimate of each step.
        references: its exact contribution.

    Returns:
        rank_correlation: Spearman's, NaN where either is the same for all steps.
        squared_error: the mean.
        bias: the mean of the differences.
        sign_agreement: of steps that contribute something, the share whose estimate has its sign.
        n: how many steps there were.

    Examples:
        >>> metric = evaluate.load("./pccc_fidelity")
        >>> metric.compute(predictions=[0.5, -0.5], references=[1.0, -1.0])["squared_error"]
        0.25
    """

    def _compute(self, predictions, references):
        return vars(pccc_fidelity(predictions, references))
