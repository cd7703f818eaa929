"""Within-context variance as a module of `evaluate`; the computation is hf-credit's."""

import datasets
import evaluate

from .computation import context_variance

_DESCRIPTION = """\
The variance of credit among the alternatives to one decision, a mean over buckets, beside the variance of its mean
from bucket to bucket, which a baseline is there to take away.
"""

_CITATION = """\
@misc{c3,
  title = {Contextual Counterfactual Credit Assignment for Multi-Agent Reinforcement Learning in LLM Collaboration},
  note = {arXiv:2603.06859},
  year = {2026}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions: of each bucket, the credit of each candidate; finite numbers.

Returns:
    context_variance: the mean over buckets of the population variance inside a bucket.
    between_contexts: the population variance of the buckets' means.
    buckets: how many were measured.
    alone: buckets left out since they hold fewer than two candidates.

Examples:
    >>> metric = evaluate.load("./context_variance")
    >>> metric.compute(predictions=[[0.0, 1.0], [2.0, 4.0]])["context_variance"]
    0.625
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class ContextVariance(evaluate.Metric):
    """See the description."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"predictions": datasets.Sequence(datasets.Value("float64"))}),
        )

    def _compute(self, predictions):
        found = context_variance(predictions)
        return {
            "context_variance": found.within,
            "between_contexts": found.between,
            "buckets": found.buckets,
            "alone": found.alone,
        }
