"""Overlap as a module of `evaluate`; the computation is hf-credit's."""

import datasets
import evaluate

from .computation import overlap

_DESCRIPTION = """\
Whether continuations that one policy played say anything of another policy: quantiles of the ratios of their
probabilities, how many are clipped, and how many continuations they are worth.
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
    predictions: the ratio of each continuation, before it is clipped.
    probabilities: with which steps were drawn.
    low: the least ratio that is not clipped.
    high: the largest.
    floor: the least probability with which a step is drawn.

Returns:
    median: of the ratios.
    p95: their 95th percentile.
    ratio_clipped: the share of ratios outside the clip.
    effective: the effective sample size as a share of the sample.
    selection_median: of the probabilities, NaN without any.
    selection_at_floor: the share of probabilities at the floor, NaN without any.
    n: how many ratios there were.

Examples:
    >>> metric = evaluate.load("./overlap")
    >>> metric.compute(predictions=[1.0, 1.0, 1.0, 1.0])["effective"]
    1.0
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class Overlap(evaluate.Metric):
    """See the description."""

    def _info(self):
        features = {"predictions": datasets.Value("float64")}
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(features),
        )

    def _compute(self, predictions, probabilities=(), low=0.2, high=5.0, floor=0.15):
        found = overlap(predictions, probabilities, low, high, floor)
        return {
            "median": found.median,
            "p95": found.p95,
            "ratio_clipped": found.ratio_clipped,
            "effective": found.effective,
            "selection_median": found.selection_median,
            "selection_at_floor": found.selection_at_floor,
            "n": found.n,
        }
