"""pass@k as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, mean_pass_at_k

CITATION = """\
@misc{chen2021evaluating,
  title = {Evaluating Large Language Models Trained on Code},
  author = {Mark Chen and others},
  note = {arXiv:2107.03374},
  year = {2021}
}
"""


class PassAtK(Measure, citation=CITATION, inputs={"predictions": ["float64"]}):
    """The chance that at least one of k attempts at an instance succeeds, estimated without bias from n attempts at
    each and averaged over instances. It takes scores, runs no code, and so serves any task with a checker.

    Args:
        predictions: of each instance, the score of each attempt; None where an attempt could not be scored, which is
            incorrect.
        k: a list of numbers, each at most the attempts at every instance.
        threshold: the least score that is correct.

    Returns:
        pass@k of each k, in [0, 1].

    Examples:
        >>> metric = evaluate.load("./pass_at_k")
        >>> metric.compute(predictions=[[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]], k=[1, 2])
        {'pass@1': 0.5, 'pass@2': 0.75}
    """

    def _compute(self, predictions, k=(1,), threshold=1.0):
        return {f"pass@{one}": mean_pass_at_k(predictions, one, threshold) for one in k}
