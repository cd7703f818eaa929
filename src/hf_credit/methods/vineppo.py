"""VinePPO: every decision gets the change of the state's Monte Carlo value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hf_credit.collectors import Continuations, RolloutBatch, single_or_group
from hf_credit.credit import value_differences
from hf_credit.methods.base import Credit, Method, outcomes_of, paper, whitened_over_processes, without_errors
from hf_credit.methods.turns import step_tokens, step_values, turn_to_decision_credit
from hf_credit.options import Count, Options, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("VinePPO: Refining Credit Assignment in RL Training of LLMs", arxiv="2410.01679")


@dataclass(frozen=True, kw_only=True)
class VineValues(Options):
    """`value_differences` of the mean outcomes of continuations, `whitened` over the tokens of all processes.

    Failed episodes get no credit, nor do decisions before or after which the value is unknown (`continuation_values`).
    Their tokens count in no mean.

    Args:
        whiten: whether advantages are whitened.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"continuations"})

    whiten: bool = True

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        values, active = step_values(collected, rows)
        advantages = value_differences(values, outcomes_of(collected, rows)[0], active)
        if self.whiten:
            known = active & ~advantages.isnan()
            tokens, _ = step_tokens(collected, rows)
            pair = advantages[known].tolist(), tokens[known].tolist()
            advantages[known] = whitened_over_processes(*pair, context)
        return Credit(decisions=turn_to_decision_credit(collected, rows, advantages))


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
