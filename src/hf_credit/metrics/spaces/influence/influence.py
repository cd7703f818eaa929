"""Influence as a module of `evaluate`; the computation is hf-credit's."""

from .computation import C3, Measure, influence, influence_by_chance


class Influence(Measure, citation=C3, inputs={"predictions": [["string"]]}):
    """How much a message determines the next speaker's answer: the mutual information between the message inserted at
    a frozen context and the answer, in nats, averaged over contexts.

    Args:
        predictions: of each bucket, of each candidate message, the answer in each replay; None where nobody answered.
        vocabulary: how many different answers to tell apart over all buckets; the others are one symbol.
        alpha: pseudo-count of every symbol of a bucket.

    Returns:
        influence: in nats, in [0, ln J] with J candidates; NaN where no bucket has two.
        by_chance: the same after the answers of each bucket were dealt out at random.
        buckets: how many were measured.
        alone: buckets left out since they hold fewer than two candidates.

    Examples:
        >>> metric = evaluate.load("./influence")
        >>> round(metric.compute(predictions=[[["left", "left"], ["right", "right"]]])["influence"], 3)
        0.662
    """

    def _compute(self, predictions, **options):
        found = influence(predictions, **options)
        return {
            "influence": found.mean,
            "by_chance": influence_by_chance(predictions, **options),
            "buckets": found.buckets,
            "alone": found.alone,
        }
