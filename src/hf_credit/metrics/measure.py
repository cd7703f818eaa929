"""The base class of metrics, which `hf_credit.metrics.build` writes into the `computation.py` of each."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Mapping
from typing import Any

import datasets
import evaluate

C3 = """\
@misc{c3,
  title = {Contextual Counterfactual Credit Assignment for Multi-Agent Reinforcement Learning in LLM Collaboration},
  note = {arXiv:2603.06859},
  year = {2026}
}
"""
CCPO = """\
@misc{ccpo,
  title = {Counterfactual Credit Policy Optimization for Multi-Agent Collaboration},
  note = {arXiv:2603.21563},
  year = {2026}
}
"""
CVT_RL = """\
@misc{cvt_rl,
  title = {Policy-Conditioned Counterfactual Credit for Verifiable Reinforcement Learning of Long-Horizon Language
    Agents},
  note = {arXiv:2606.05263},
  year = {2026}
}
"""
T3 = """\
@misc{t3,
  title = {T3: Reducing Belief Deviation in Reinforcement Learning for Active Reasoning},
  note = {arXiv:2510.12264},
  year = {2025}
}
"""


class Measure(evaluate.Metric, abc.ABC):
    """A metric whose docstring describes it: its purpose, then its arguments, results and examples.

    Args:
        inputs: class argument: the type of each input by name: the name of a type of `datasets`, a list of one type
            for lists, or a mapping.
        citation: class argument: the BibTeX entry of the paper.
    """

    _inputs: Mapping[str, Any]
    _citation: str

    def __init_subclass__(cls, *, inputs: Mapping[str, Any], citation: str) -> None:
        cls._inputs, cls._citation = inputs, citation

    def _info(self) -> evaluate.MetricInfo:
        description, _, usage = inspect.cleandoc(type(self).__doc__ or "").partition("\n\nArgs:")
        return evaluate.MetricInfo(
            description=f"{description}\n",
            citation=self._citation,
            inputs_description=f"\nArgs:{usage}\n",
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
