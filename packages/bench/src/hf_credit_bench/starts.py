"""Episodes that begin in reach of success: at states of a perfect policy's walks, which stand for demonstrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, ClassVar

from hf_credit import methods
from hf_credit.collectors.base import RolloutBatch, played
from hf_credit.methods import Credit, Method
from hf_credit.rollouts import RolloutRequest
from hf_credit_bench.problem import Position, Problem
from hf_credit_bench.truth import perfect

GROUP = 4
REACHED = 0.35
"""The share of a walk's return that episodes from the reach must get, to begin earlier."""


def walk(problem: Problem, row: Mapping[str, Any]) -> list[Position]:
    """Returns the states of the best policy's walk through a task, from the first to the end."""
    known, states = perfect(problem), [problem.start(row, row["seed"])]
    while requests := problem.pending(states[-1]):
        actions: tuple[int, ...] = ()
        for _ in requests:
            actions = (*actions, known[states[-1].node, actions][0])
        states.append(problem.advance(states[-1], [str(action) for action in actions]))
    return states


@dataclass(frozen=True, kw_only=True)
class FromWalks:
    """A group of episodes for each task row, from a state of its walk: any, or within the reach that is remembered.

    With a reach of h steps, half of the groups begin h steps before the end, a quarter between there and the end, and
    a quarter at the first state.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"groups", "alternatives"})
    replaying: ClassVar[bool] = True

    def __call__(self, rows: Sequence[Mapping[str, Any]], context: Any, memory: int | None = None) -> RolloutBatch:
        draws = context.draws("starts")
        begun, starts = [], []
        for row in rows:
            *states, end = walk(context.interaction, row)
            depth = draws.randint(1, len(states))
            if memory is not None:
                reach = min(memory, len(states))
                depth = draws.choices([reach, reach, draws.randint(1, reach), len(states)])[0]
            state = states[-depth]
            begun.append({"depth": depth, "before": state.total, "walk": end.total - state.total})
            starts.append(RolloutRequest(task=row, state=state, step=len(states) - depth, fanout=(GROUP,)))
        batch = played(context.play(starts), range(len(rows)), len(rows))
        return replace(batch, rollouts=tuple(replace(one, extras=begun[one.instance]) for one in batch.rollouts))


def perfect_starts() -> Method:
    """RLOO from states drawn evenly from the best policy's walks, which nobody knows."""
    return replace(methods.make("rloo", group_size=GROUP), name="perfect_starts", collector=FromWalks(), memory=None)


def reverse_curriculum() -> Method:
    """RLOO from states of a known walk of each task, ever further from its end (Florensa et al., arXiv 1707.05300).

    The reach grows by half whenever the episodes from there reach `REACHED` of what their walks did. A training has
    `hf_credit.trainers.starts`. Its reach grows by 1.3 steps in an update until it is 8, for hundreds of updates where
    the bench has 16, and it begins in walks of success 1 alone, where the bench has random rewards.
    """
    rloo = methods.make("rloo", group_size=GROUP)

    def estimator(collected: RolloutBatch, context: Any, memory: int) -> Credit:
        seen = [
            (one.episode.outcome - one.extras["before"], one.extras["walk"])
            for one in collected.rollouts
            if one.extras["depth"] >= memory
        ]
        reached = bool(seen) and fmean(own for own, _ in seen) >= REACHED * fmean(walks for _, walks in seen)
        return replace(rloo.estimator(collected, context, None), memory=memory + reached * (memory + 1) // 2)

    return replace(rloo, name="reverse_curriculum", collector=FromWalks(), estimator=estimator, memory=1)
