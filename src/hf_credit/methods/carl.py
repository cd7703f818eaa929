"""CARL: more rollouts from the states where the policy is least sure, and credit at the forks only."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import torch

from hf_credit.collectors import RolloutBatch, UncertainForks
from hf_credit.credit import branch_advantages
from hf_credit.methods.base import Credit, DecisionCredit, Method, paper, step_weights, without_errors
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "CARL: Criticality-Aware Agentic Reinforcement Learning",
    arxiv="2512.04949",
)


@dataclass(frozen=True, kw_only=True)
class Branches:
    """`branch_advantages` of the tree of each instance; a step that is the only one from its state gets no credit.

    Episodes that failed get no credit and are no branch.

    Args:
        equal_steps: whether decisions are weighed by `step_weights`, so that all steps of a tree weigh alike.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"alternatives", "trees"})
    equal_steps: bool = False

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        vertices: dict[Hashable, int] = {}
        parents: list[int] = []
        outcomes: list[float] = []
        for row in without_errors(collected):
            episode = collected.episodes[row]
            above = -1
            for name in [collected.instances[row], *(step[0].id for step in episode.steps)]:
                if name not in vertices:
                    vertices[name] = len(parents)
                    parents.append(above)
                    outcomes.append(0.0)
                above = vertices[name]
            outcomes[above] = episode.outcome
        known = branch_advantages(torch.tensor(parents, dtype=torch.long), torch.tensor(outcomes, dtype=torch.float64))
        advantages, siblings = (found.tolist() for found in known)
        given: dict[str, DecisionCredit] = {}
        for row in without_errors(collected):
            for step in collected.episodes[row].steps:
                vertex = vertices[step[0].id]
                if siblings[vertex] > 1:
                    given.update((decision.id, advantages[vertex]) for decision in step)
        return Credit(decisions=given, weights=step_weights(collected) if self.equal_steps else {})


def carl(initial: int = 4, forks: int = 16, forks_per_round: int = 1, equal_steps: bool = False) -> Method:
    """The method.

    Args:
        initial, forks, forks_per_round: as in `UncertainForks`.
        equal_steps: as in `Branches`.
    """
    collector = UncertainForks(initial=initial, forks=forks, forks_per_round=forks_per_round)
    return Method(name="carl", collector=collector, estimator=Branches(equal_steps=equal_steps), paper=PAPER)
