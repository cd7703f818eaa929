"""VinePPO: every decision gets the change of the state's Monte Carlo value.

A[t] = V(s[t + 1]) - V(s[t])    (arXiv:2410.01679),    V of the final state = R, else the mean of continuations
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from hf_credit.collectors import Continuations, single_or_group
from hf_credit.credit import value_differences
from hf_credit.methods.base import Method, paper, whitened_over_processes
from hf_credit.methods.groups import OfTurns, Turns
from hf_credit.options import Count, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("VinePPO: Refining Credit Assignment in RL Training of LLMs", arxiv="2410.01679")


@dataclass(frozen=True, kw_only=True)
class VineValues(OfTurns):
    """`value_differences` of the mean outcomes of continuations, `whitened` over the trained tokens of all processes.

    Failed episodes get no credit, nor do decisions before or after which the value is unknown (`continuation_values`).
    Their tokens count in no mean.

    Args:
        whiten: whether advantages are whitened.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"continuations"})
    revision: ClassVar[int] = 2

    whiten: bool = True

    def advantages(self, played: Turns, context: MethodContext) -> Tensor:
        values, active = played.values()
        advantages = value_differences(values, played.outcomes, active)
        if self.whiten:
            known = active & ~advantages.isnan()
            tokens, _ = played.table(lambda step: sum(len(one.action_ids) for one in step if one.trained))
            pair = advantages[known].tolist(), tokens[known].tolist()
            advantages[known] = whitened_over_processes(*pair, context)
        return advantages


@with_parts
def vineppo(
    group_size: Count = 8,
    rollouts: Count = 9,
    template_kwargs: Mapping[str, Any] | None = None,
    estimator: VineValues = VineValues(),
) -> Method:
    """Returns the VinePPO method.

    Args:
        rollouts: number of continuations from the state before each decision; 9 in the paper.
        template_kwargs: chat template settings of the rollouts; the recorded tokens are continued if `None`.
    """
    inner = single_or_group(group_size)
    collector = Continuations(rollouts=rollouts, inner=inner, template_kwargs=template_kwargs)
    return Method(name="vineppo", collector=collector, estimator=estimator, paper=PAPER)
