"""The free-rider index as a module of `evaluate`; the computation is hf-credit's."""

from .computation import CCPO, Measure, free_rider_index


class FreeRiderIndex(Measure, citation=CCPO, inputs={"predictions": "float64", "references": "float64"}):
    """Of all positive credit that a method gave to the messages of a team, the share that went to messages by which
    the team gained nothing or lost.

    Args:
        predictions: the credit of each message; finite numbers.
        references: what the team gained by each message, exactly or from replays that were held out.

    Returns:
        free_rider_index: in [0, 1]; NaN where no credit is positive.

    Examples:
        >>> metric = evaluate.load("./free_rider_index")
        >>> metric.compute(predictions=[1.0, 1.0, 2.0], references=[0.5, -0.5, 0.0])
        {'free_rider_index': 0.75}
    """

    def _compute(self, predictions, references):
        return {"free_rider_index": free_rider_index(predictions, references)}
