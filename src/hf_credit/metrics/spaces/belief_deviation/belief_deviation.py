"""Belief deviation as a module of `evaluate`; the computation is hf-credit's."""

import datasets
import evaluate

from .computation import belief_deviation

_DESCRIPTION = """\
How far beliefs read off a policy are from what the transcript implies: their divergence in nats, how often their
likeliest value is right, and their calibration error.
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


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class BeliefDeviation(evaluate.Metric):
    """See the description."""

    def _info(self):
        features = {
            "predictions": datasets.Sequence(datasets.Value("float64")),
            "references": datasets.Sequence(datasets.Value("float64")),
        }
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(features),
        )

    def _compute(self, predictions, references, most=2.0, bins=10):
        found = belief_deviation(predictions, references, most, bins)
        return {
            "deviation": found.deviation,
            "accuracy": found.accuracy,
            "calibration_error": found.calibration_error,
            "n": found.n,
        }
