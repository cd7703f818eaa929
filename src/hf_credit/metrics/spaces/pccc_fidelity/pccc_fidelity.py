"""PCCC fidelity as a module of `evaluate`; the computation is hf-credit's."""

import datasets
import evaluate

from .computation import pccc_fidelity

_DESCRIPTION = """\
Whether what steps were estimated to contribute is what they do contribute, by enumeration or many continuations.
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
    predictions: the estimate of each step.
    references: its exact contribution.

Returns:
    rank_correlation: Spearman's, NaN where either is the same for all steps.
    squared_error: the mean.
    bias: the mean of the differences.
    sign_agreement: of steps that contribute something, the share whose estimate has its sign.
    n: how many steps there were.

Examples:
    >>> metric = evaluate.load("./pccc_fidelity")
    >>> metric.compute(predictions=[0.5, -0.5], references=[1.0, -1.0])["squared_error"]
    0.25
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class PCCCFidelity(evaluate.Metric):
    """See the description."""

    def _info(self):
        features = {"predictions": datasets.Value("float64"), "references": datasets.Value("float64")}
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(features),
        )

    def _compute(self, predictions, references):
        found = pccc_fidelity(predictions, references)
        return {
            "rank_correlation": found.rank_correlation,
            "squared_error": found.squared_error,
            "bias": found.bias,
            "sign_agreement": found.sign_agreement,
            "n": found.n,
        }
