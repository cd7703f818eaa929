"""The base class of metrics, which `hf_credit.metrics.build` writes into each."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import datasets
import evaluate

CARD = ""
"""The card of the metric, without its metadata, once it is built."""


class Measure(evaluate.Metric, abc.ABC):
    """A metric that its card describes: its purpose, then how to use it, and the BibTeX entry of the paper.

    Args:
        inputs: class argument: the type of each input by name: the name of a type of `datasets`, a list of one type
            for lists, or a mapping.
    """

    _inputs: Mapping[str, Any]

    def __init_subclass__(cls, *, inputs: Mapping[str, Any]) -> None:
        cls._inputs = inputs

    def _info(self) -> evaluate.MetricInfo:
        description, _, rest = CARD.partition("## How to use\n")
        usage, _, citation = rest.partition("## Citation\n\n```bibtex\n")
        return evaluate.MetricInfo(
            description=description.strip(),
            citation=citation.partition("```")[0],
            inputs_description=usage.strip(),
            features=datasets.Features(_features(self._inputs)),
        )

    @abc.abstractmethod
    def _compute(self, **inputs: Any) -> Mapping[str, Any]:
        """Returns the results by name."""


def _features(kind: Any) -> Any:
    if isinstance(kind, str):
        return datasets.Value(kind)
    if isinstance(kind, list):
        return datasets.Sequence(_features(kind[0]))
    return {name: _features(one) for name, one in kind.items()}
