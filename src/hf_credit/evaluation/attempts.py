"""Several attempts at each task, for pass@k (paper C3, Appendix G, Table 11)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hf_credit.rollouts import Ending, Engine, Ledger, RolloutRequest, refuse_total_failure


def attempt(
    engine: Engine[Any], starts: Sequence[RolloutRequest[Any]], samples: int = 1, seed: int = 0
) -> tuple[list[list[float | None]], Ledger]:
    """Plays several episodes of each task and returns their scores, as `mean_pass_at_k` takes them.

    All attempts at a task have the same environment seed and differ only in the replies, so a greedy policy needs one
    attempt. If the sampler honours seeds, replies are determined by the seed, the index of the task and the attempt.

    Args:
        engine: plays with the policy.
        starts: one start per task, without `fanout`.
        samples: the number of attempts at each task, at least 1.
        seed: of the replies.

    Returns:
        For each task, the outcome of each attempt, `None` if it ended in an error; and the cost.

    Raises:
        ValueError: a number is out of range, or a start has alternatives.
        EveryEpisodeFailedError: every attempt ended in an error.
    """
    if samples < 1:
        raise ValueError(f"samples of a task must be at least 1, got {samples}; raise it.")
    if any(start.fanout for start in starts):
        raise ValueError("starts of attempts must have no fanout, got one with alternatives; omit fanout.")
    named = [
        replace(start, stream=f"attempt {seed} {place} {number}" if engine.honours_seeds else start.stream)
        for place, start in enumerate(starts)
        for number in range(samples)
    ]
    episodes = engine.run(named)
    refuse_total_failure(episodes, what="of an evaluation")
    scores = [
        episode.outcome if episode.ending != Ending.ERROR and math.isfinite(episode.outcome) else None
        for episode in episodes
    ]
    return [scores[first : first + samples] for first in range(0, len(scores), samples)], Ledger.of(episodes)
