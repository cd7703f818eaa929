"""Hack rate as a module of `evaluate`; the computation is hf-credit's."""

from .computation import CVT_RL, Measure, hack_rate


class HackRate(Measure, citation=CVT_RL, inputs={"predictions": "bool"}):
    """How often an agent hacks its check: the share of episodes that a detector flags, corrected for the detector's
    error rates, with its interval.

    Args:
        predictions: whether the detector flags each episode.
        false_positive_rate, false_negative_rate: of the detector; they sum to less than 1.
        clean, hacked: on how many episodes these rates were measured; None where they are known.
        confidence: of the interval.

    Returns:
        apparent: the flagged share.
        corrected: the estimated share of hacked episodes, in [0, 1].
        low, high: the interval of corrected.
        n: how many episodes there were.

    Examples:
        >>> metric = evaluate.load("./hack_rate")
        >>> found = metric.compute(predictions=[True, False, False, False], false_positive_rate=0.1)
        >>> round(found["corrected"], 4)
        0.1667
    """

    def _compute(self, predictions, **options):
        return vars(hack_rate(predictions, **options))
