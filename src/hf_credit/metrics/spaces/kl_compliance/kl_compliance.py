"""KL compliance as a module of `evaluate`; the computation is hf-credit's."""

import datasets
import evaluate

from .computation import kl_compliance

_DESCRIPTION = """\
How far updates moved a policy from the one that played, and how often that is within a radius.
"""

_CITATION = """\
@misc{cvt_rl,
  title = {Policy-Conditioned Counterfactual Credit for Verifiable Reinforcement Learning of Long-Horizon Language
    Agents},
  note = {arXiv:2606.05263},
  year = {2026}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions: of each update, the mean over its tokens of KL(old || new), in nats.
    radius: the most that it should be.

Returns:
    mean: over updates.
    p99: their 99th percentile.
    within: the share of updates within the radius.
    n: how many updates there were.

Examples:
    >>> metric = evaluate.load("./kl_compliance")
    >>> metric.compute(predictions=[0.005, 0.02], radius=0.01)["within"]
    0.5
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class KLCompliance(evaluate.Metric):
    """See the description."""

    def _info(self):
        features = {"predictions": datasets.Value("float64")}
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(features),
        )

    def _compute(self, predictions, radius=0.025):
        found = kl_compliance(predictions, radius)
        return {
            "mean": found.mean,
            "p99": found.p99,
            "within": found.within,
            "n": found.n,
        }
