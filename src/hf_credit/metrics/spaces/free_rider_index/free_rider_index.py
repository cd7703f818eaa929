"""The free-rider index as a module of `evaluate`; the computation is hf-credit's."""

import datasets
import evaluate

from .computation import free_rider_index

_DESCRIPTION = """\
Of all positive credit that a method gave to the messages of a team, the share that went to messages by which the team
gained nothing or lost.
"""

_CITATION = """\
@misc{ccpo,
  title = {Counterfactual Credit Policy Optimization for Multi-Agent Collaboration},
  note = {arXiv:2603.21563},
  year = {2026}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions: the credit of each message; finite numbers.
    references: what the team gained by each message, exactly or from replays that were held out.

Returns:
    free_rider_index: in [0, 1]; NaN where no credit is positive.

Examples:
    >>> metric = evaluate.load("./free_rider_index")
    >>> metric.compute(predictions=[1.0, 1.0, 2.0], references=[0.5, -0.5, 0.0])
    {'free_rider_index': 0.75}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class FreeRiderIndex(evaluate.Metric):
    """See the description."""

    def _info(self):
        number = datasets.Value("float64")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"predictions": number, "references": number}),
        )

    def _compute(self, predictions, references):
        return {"free_rider_index": free_rider_index(predictions, references)}
