"""VinePPO: every decision gets the change of the state's Monte Carlo value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from hf_credit.collectors import Continuations, RolloutBatch, single_or_group
from hf_credit.credit import value_differences, whitened
from hf_credit.methods.base import Credit, Method, all_gather_with_slice, outcomes_of, paper, without_errors
from hf_credit.methods.turns import pad_to_matrix, step_values, turn_to_decision_credit
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
            steps = [collected.episodes[row].steps for row in rows]
            tokens, _ = pad_to_matrix(
                [[sum(len(one.action_ids) for one in step) for step in episode] for episode in steps]
            )
            pairs = torch.stack([advantages[known], tokens[known]], dim=1).tolist()
            all_pairs, local = all_gather_with_slice(pairs, context)
            table = torch.tensor(all_pairs, dtype=torch.float64).reshape(-1, 2)
            advantages[known] = whitened(table[:, 0], table[:, 1])[local]
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
