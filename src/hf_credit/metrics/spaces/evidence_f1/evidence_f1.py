"""Evidence F1 as a module of `evaluate`; the computation is hf-credit's."""

import datasets
import evaluate

from .computation import evidence_f1

_DESCRIPTION = """\
Whether answers rest on what supports them: the F1 of the documents that an answer cites and those that support it, a
mean over answers.
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
    predictions: of each answer, the documents it cites.
    references: of each answer, the documents that support it, at least one.
    entailment: how surely the evidence entails each answer, in [0, 1].

Returns:
    f1, precision, recall: means over answers.
    reward: the mean of the harmonic mean of F1 and entailment; NaN without entailment.
    n: how many answers there were.

Examples:
    >>> metric = evaluate.load("./evidence_f1")
    >>> round(metric.compute(predictions=[["a", "b"]], references=[["a"]])["f1"], 4)
    0.6667
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class EvidenceF1(evaluate.Metric):
    """See the description."""

    def _info(self):
        features = {
            "predictions": datasets.Sequence(datasets.Value("string")),
            "references": datasets.Sequence(datasets.Value("string")),
        }
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(features),
        )

    def _compute(self, predictions, references, entailment=None):
        found = evidence_f1(predictions, references, entailment)
        return {
            "f1": found.f1,
            "precision": found.precision,
            "recall": found.recall,
            "reward": found.reward,
            "n": found.n,
        }
