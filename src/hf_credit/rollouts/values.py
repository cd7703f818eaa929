"""Monte Carlo values of the states an episode went through (the MC-PR baseline, paper VPR, section 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from hf_credit.rollouts.engine import Engine, Start
from hf_credit.rollouts.episode import Decision, Ending, Episode
from hf_credit.rollouts.ledger import Ledger


def rollout_values(
    episodes: Sequence[Episode],
    engine: Engine[Any],
    rollouts: int,
    keep_contexts: bool = True,
    on_played: Callable[[Sequence[Episode]], None] | None = None,
) -> tuple[list[list[float]], Ledger]:
    """Estimates the value of the state before each decision as the mean outcome of fresh rollouts from it.

        V(s) = (1 / rollouts) * sum_k outcome_k,   each rollout k with its own randomness ahead of s

    Args:
        episodes: whose states are valued.
        engine: plays the rollouts, with the policy that is valued.
        rollouts: how many from each state; the paper uses 100.
        keep_contexts: whether the first reply of a rollout is to the recorded tokens. Without, the engine's chat
            renders the conversation anew, as a lighter mode of the policy needs.
        on_played: given the rollouts before they are made use of, such as `refuse_total_failure`.

    Returns:
        A value for each decision of each episode, 0 where every rollout failed, and what the
        rollouts cost.
    """
    decisions = [decision for episode in episodes for decision in episode.decisions]
    starts = [_start(decision, seed, keep_contexts) for decision in decisions for seed in range(rollouts)]
    played = engine.run(starts)
    if on_played is not None:
        on_played(played)
    means = []
    for first in range(0, len(played), rollouts):
        outcomes = [episode.outcome for episode in played[first : first + rollouts] if episode.ending != Ending.ERROR]
        means.append(fmean(outcomes) if outcomes else 0.0)
    remaining = iter(means)
    values = [[next(remaining) for _ in episode.decisions] for episode in episodes]
    return values, Ledger.of(played)


def _start(decision: Decision, seed: int, keep_context: bool) -> Start[Any]:
    contexts = {decision.event: decision.context_ids} if keep_context else {}
    return Start(state=decision.state, seed=seed, contexts=contexts)
