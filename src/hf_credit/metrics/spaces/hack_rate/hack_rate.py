"""Hack rate as a module of `evaluate`; the computation is hf-credit's."""

import datasets
import evaluate

from .computation import hack_rate

_DESCRIPTION = """\
How often an agent hacks its check: the share of episodes that a detector flags, corrected for the detector's error
rates, with its interval.
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
    predictions: whether the detector flags each episode.
    false_positive_rate, false_negative_rate: of the detector; they sum to less than 1.
    clean, hacked: on how many episodes these rates were measured; None where they are known.
    confidence: of the interval.

Returns:
    apparent: the share that is flagged.
    corrected: the share that this says is hacked, in [0, 1].
    low, high: the interval of corrected.
    n: how many episodes there were.

Examples:
    >>> metric = evaluate.load("./hack_rate")
    >>> found = metric.compute(predictions=[True, False, False, False], false_positive_rate=0.1)
    >>> round(found["corrected"], 4)
    0.1667
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class HackRate(evaluate.Metric):
    """See the description."""

    def _info(self):
        features = {"predictions": datasets.Value("bool")}
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(features),
        )

    def _compute(
        self,
        predictions,
        false_positive_rate=0.0,
        false_negative_rate=0.0,
        clean=None,
        hacked=None,
        confidence=0.95,
    ):
        found = hack_rate(predictions, false_positive_rate, false_negative_rate, clean, hacked, confidence)
        return {
            "apparent": found.apparent,
            "corrected": found.corrected,
            "low": found.low,
            "high": found.high,
            "n": found.n,
        }
