"""Cut quality as a module of `evaluate`; the computation is hf-credit's."""

import datasets
import evaluate

from .computation import cut_quality

_DESCRIPTION = """\
Whether the stalls of a rule of truncation are steps without progress, and which share of the episodes that it cut
would have succeeded.
"""

_CITATION = """\
@misc{t3,
  title = {T3: Reducing Belief Deviation in Reinforcement Learning for Active Reasoning},
  note = {arXiv:2510.12264},
  year = {2025}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions: of each episode, whether each step stalled by the rule.
    references: of each episode, by how much each step lowered the potential of the belief, in nats.
    played_on: of each episode that was cut, its success when it is played on from there.

Returns:
    precision: of the steps that stalled, the share that made no progress; NaN without a stall.
    recall: of the steps that made no progress, the share that stalled; NaN where all did.
    lost: of the episodes that were cut, the share that succeeds when played on; NaN where none was.
    steps: how many there were.
    cuts: how many episodes were cut.

Examples:
    >>> metric = evaluate.load("./cut_quality")
    >>> metric.compute(predictions=[[False, True]], references=[[0.7, 0.0]], played_on=[0.0])["precision"]
    1.0
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class CutQuality(evaluate.Metric):
    """See the description."""

    def _info(self):
        features = {
            "predictions": datasets.Sequence(datasets.Value("bool")),
            "references": datasets.Sequence(datasets.Value("float64")),
        }
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(features),
        )

    def _compute(self, predictions, references, played_on=()):
        found = cut_quality(predictions, references, played_on)
        return {
            "precision": found.precision,
            "recall": found.recall,
            "lost": found.lost,
            "steps": found.steps,
            "cuts": found.cuts,
        }
