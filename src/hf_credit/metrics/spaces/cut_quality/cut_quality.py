"""Cut quality as a module of `evaluate`; the computation is hf-credit's."""

from .computation import T3, Measure, cut_quality


class CutQuality(Measure, citation=T3, inputs={"predictions": ["bool"], "references": ["float64"]}):
    """Whether the stalls of a rule of truncation are steps without progress, and which share of the episodes that it
    cut would have succeeded.

    Args:
        predictions: of each episode, whether each step stalled by the rule.
        references: of each episode, by how much each step lowered the potential of the belief, in nats.
        played_on: of each episode that was cut, its success when it is played on from there.

    Returns:
        precision: of the steps that stalled, the share that made no progress; NaN without a stall.
        recall: of the steps that made no progress, the share that stalled; NaN where all did.
        lost: of the episodes that were cut, the share that succeeds when played on; NaN where none was.
        steps: how many there were.
        cuts: how many episodes were cut.

    Examples:
        >>> metric = evaluate.load("./cut_quality")
        >>> metric.compute(predictions=[[False, True]], references=[[0.7, 0.0]], played_on=[0.0])["precision"]
        1.0
    """

    def _compute(self, predictions, references, **options):
        return vars(cut_quality(predictions, references, **options))
