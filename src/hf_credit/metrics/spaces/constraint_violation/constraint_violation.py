"""Constraint violation as a module of `evaluate`; the computation is hf-credit's."""

import datasets
import evaluate

from .computation import constraint_violation

_DESCRIPTION = """\
Whether a cost stays under its limit: the mean over episodes of what each one cost, and how far that is above the
limit.
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
    predictions: what each episode cost, the discounted sum of the costs of its steps.
    limit: the most that the mean may be.

Returns:
    cost: the mean.
    violation: how far it is above the limit, 0 where it is not.
    episodes_above: the share of episodes that cost more than the limit.
    n: how many episodes there were.

Examples:
    >>> metric = evaluate.load("./constraint_violation")
    >>> metric.compute(predictions=[0.0, 1.0], limit=0.25)["violation"]
    0.25
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class ConstraintViolation(evaluate.Metric):
    """See the description."""

    def _info(self):
        features = {"predictions": datasets.Value("float64")}
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(features),
        )

    def _compute(self, predictions, limit=0.0):
        found = constraint_violation(predictions, limit)
        return {
            "cost": found.cost,
            "violation": found.violation,
            "episodes_above": found.episodes_above,
            "n": found.n,
        }
