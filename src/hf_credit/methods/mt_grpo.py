"""MT-GRPO: rewards of turns and of outcomes, each compared within the group."""

from __future__ import annotations

from dataclasses import dataclass

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import multi_turn_advantages
from hf_credit.methods.base import Credit, Method, outcomes_of, paper, without_errors
from hf_credit.methods.turns import pad_to_matrix, scored_group, scores, turn_to_decision_credit
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.validators import finite_number

PAPER = paper(
    "Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Reward Design",
    arxiv="2505.11821",
)


@dataclass(frozen=True, kw_only=True)
class MultiTurn:
    """`multi_turn_advantages` of each instance. Episodes that failed get no credit.

    Args:
        turn_scores: where the reward of a turn is from: the `"reward"` that the Interaction pays for the step, or an
            oracle's `"verdict"`; a turn that nobody judged has 0. The outcome is the episode's, whatever its turns
            were paid.
        turn_weight, gamma, all_turns, eps: as in `multi_turn_advantages`.
    """

    turn_scores: str = "reward"
    turn_weight: float = 1.0
    gamma: float = 1.0
    all_turns: bool = False
    eps: float = 1e-4

    def __post_init__(self) -> None:
        if not 0 <= finite_number("gamma", self.gamma) <= 1:
            raise ValueError(f"gamma must be in [0, 1], got {self.gamma}; 1 is usual.")
        finite_number("turn_weight", self.turn_weight, least=0)
        finite_number("eps", self.eps, above=0)

    @property
    def needs(self) -> frozenset[str]:
        """What `Method.bind` asks of a collector."""
        return frozenset({"groups", "verdicts"} if self.turn_scores == "verdict" else {"groups"})

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        outcomes, groups = outcomes_of(collected, rows)
        turns = [scores(collected.episodes[row], self.turn_scores) for row in rows]
        rewards, active = pad_to_matrix([[value or 0.0 for value in own] for own in turns])
        advantages = multi_turn_advantages(
            rewards, outcomes, active, groups, self.turn_weight, self.gamma, self.all_turns, self.eps
        )
        return Credit(decisions=turn_to_decision_credit(collected, rows, advantages))


def mt_grpo(
    group_size: int = 8,
    turn_scores: str = "reward",
    turn_weight: float = 1.0,
    gamma: float = 1.0,
    all_turns: bool = False,
    eps: float = 1e-4,
) -> Method:
    """The method.

    Args:
        group_size: episodes of each task row.
        turn_scores, turn_weight, gamma, all_turns, eps: as in `MultiTurn`.
    """
    collector, evaluation = scored_group(group_size, turn_scores)
    estimator = MultiTurn(turn_scores=turn_scores, turn_weight=turn_weight, gamma=gamma, all_turns=all_turns, eps=eps)
    return Method(name="mt_grpo", collector=collector, estimator=estimator, evaluation=evaluation, paper=PAPER)
