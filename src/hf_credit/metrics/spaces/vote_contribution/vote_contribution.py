"""Vote contribution as a module of `evaluate`; the computation is hf-credit's."""

from .computation import CCPO, Measure, vote_contribution


class VoteContribution(Measure, citation=CCPO, inputs={"predictions": ["string"], "references": "string"}):
    """How often the plurality of K voters is right, and what each of them adds: its contribution, which is the vote's
    score less that of the vote without it, and its Shapley value.

    Args:
        predictions: of each instance, the answer of each voter in a normal form; None abstains.
        references: of each instance, the right answer in the same form.
        ties: "expected", "first" or "none".

    Returns:
        accuracy: of the votes, in [0, 1].
        voters: of each voter by itself.
        contributions, shapley: of each voter, in [-1, 1].
        tied, abstained: share of votes that are tied, and of answers that are missing.

    Examples:
        >>> metric = evaluate.load("./vote_contribution")
        >>> found = metric.compute(predictions=[["a", "a", "a"], ["a", "b", "b"]], references=["a", "a"])
        >>> found["accuracy"], found["contributions"]
        (0.5, [0.0, -0.25, -0.25])
    """

    def _compute(self, predictions, references, **options):
        return vars(vote_contribution(predictions, references, **options))
