"""Belief deviation as a module of `evaluate`; the computation is hf-credit's."""

from .computation import CVT_RL, Measure, belief_deviation


class BeliefDeviation(Measure, citation=CVT_RL, inputs={"predictions": ["float64"], "references": ["float64"]}):
    """How far beliefs read off a policy are from what the transcript implies: their divergence in nats, how often
    their likeliest value is right, and their calibration error.

    Args:
        predictions: of each belief, the share of each value.
        references: what the transcript implies, likewise.
        most: where a divergence is clipped.
        bins: of the calibration error.

    Returns:
        deviation: the mean divergence KL(reference || prediction), each clipped, in nats.
        accuracy: how often the likeliest value is right.
        calibration_error: the expected calibration error of its share.
        n: how many beliefs there were.

    Examples:
        >>> metric = evaluate.load("./belief_deviation")
        >>> round(metric.compute(predictions=[[0.5, 0.5]], references=[[1.0, 0.0]])["deviation"], 4)
        0.6931
    """

    def _compute(self, predictions, references, **options):
        return vars(belief_deviation(predictions, references, **options))
