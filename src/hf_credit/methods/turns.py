"""Common parts of methods that credit turns: from episodes to matrices of turns, and back."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from statistics import fmean

import torch
from torch import Tensor

from hf_credit.collectors import Collector, Group, RolloutBatch, Single, Verified, continuation_values
from hf_credit.methods.base import DecisionCredit, mean_by_decision
from hf_credit.rollouts import Decision, Episode
from hf_credit.rollouts.method_context import MethodContext


def step_rewards(episode: Episode) -> list[float]:
    """The reward of each step; the outcome minus their sum is added to the last one.

    This is 0 if the rewards sum to the outcome, and the whole outcome if there are no other rewards.
    """
    rewards = [step[0].reward for step in episode.steps]
    return [*rewards[:-1], rewards[-1] + (episode.outcome - sum(rewards))] if rewards else []


def scores(episode: Episode, source: str) -> list[float | None]:
    """The score of each step, the mean over simultaneous decisions; `None` without a verdict.

    Args:
        episode: whose steps are scored.
        source: the Interaction's reward for a step (`"reward"`), or an oracle's score (`"verdict"`).
    """
    if source == "reward":
        return [step[0].reward for step in episode.steps]
    judged = [[one.verdict.score for one in step if one.verdict is not None] for step in episode.steps]
    return [sum(of_step) / len(of_step) if of_step else None for of_step in judged]


def pad_to_matrix(rows: Sequence[Sequence[float | None]]) -> tuple[Tensor, Tensor]:
    """Ragged rows as a (rollouts, turns) matrix of 64 bits, and a mask of its values; `None` is missing."""
    width = max([len(row) for row in rows] + [1])
    padded = [value for row in rows for value in (*row, *[None] * (width - len(row)))]
    values = torch.tensor([value or 0.0 for value in padded], dtype=torch.float64)
    there = torch.tensor([value is not None for value in padded], dtype=torch.bool)
    return values.view(len(rows), width), there.view(len(rows), width)


def step_values(collected: RolloutBatch, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The Monte Carlo value before each step of some of the trained rollouts, as `pad_to_matrix` makes it.

    Simultaneous decisions share one state, and all rollouts from it count.

    Args:
        collected: of this process, with rollouts from the state before each decision.
        rows: the indices of the rollouts, none of which failed.
    """
    known = continuation_values(collected)
    rest = [iter(known[row] or []) for row in rows]
    return pad_to_matrix(
        [
            [fmean(next(values) for _ in step) for step in collected.episodes[row].steps]
            for row, values in zip(rows, rest, strict=True)
        ]
    )


def turn_to_decision_credit(
    collected: RolloutBatch, rows: Sequence[int], advantages: Tensor
) -> dict[str, DecisionCredit]:
    """The credit of turns for their decisions.

    Args:
        collected: of this process.
        rows: the indices of the credited trained rollouts; the others get no credit.
        advantages: of shape (rows, turns).
    """
    return mean_by_decision(
        (decision, value)
        for row, values in zip(rows, advantages.tolist(), strict=True)
        for step, value in zip(collected.episodes[row].steps, values, strict=False)
        for decision in step
    )


def state_numbers(collected: RolloutBatch, rows: Sequence[int], anchor: str, context: MethodContext) -> list[int]:
    """A number for each step of some of the trained rollouts, the same for steps of one instance from equal states.

    Args:
        collected: of this process.
        rows: the indices of the rollouts.
        anchor: what the decisions of two equal steps have in common, beside their event types: the `"observation"`,
            the last message; the whole `"context"`, in tokens; or the `"state"` of the Interaction, which must be
            hashable.
        context: with the Interaction.
    """

    def of(decision: Decision) -> Hashable:
        if anchor == "observation":
            requests = context.interaction.pending(decision.state)
            return next(str(one.messages[-1]["content"]) for one in requests if one.event == decision.event)
        return decision.context_ids if anchor == "context" else decision.state

    numbers: dict[Hashable, int] = {}
    return [
        numbers.setdefault((collected.instances[row], tuple((one.event, of(one)) for one in step)), len(numbers))
        for row in rows
        for step in collected.episodes[row].steps
    ]


def scored_group(size: int, source: str) -> tuple[Collector, Collector]:
    """A collector of groups of episodes with scored turns, and the collector of evaluations.

    Args:
        size: of the group, at least 2.
        source: as in `scores`.
    """
    group = Group(size=size)
    return (group, Single()) if source == "reward" else (Verified(inner=group), Verified(required=False))
