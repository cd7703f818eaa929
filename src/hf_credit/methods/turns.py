"""What methods that credit turns have in common: from episodes to matrices of turns, and back."""

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
    """The reward of each step; the last one is paid what the outcome adds to all of them.

    A world whose rewards sum to its outcome adds nothing; one that pays at the end only adds everything.
    """
    rewards = [step[0].reward for step in episode.steps]
    return [*rewards[:-1], rewards[-1] + (episode.outcome - sum(rewards))] if rewards else []


def scores(episode: Episode, source: str) -> list[float | None]:
    """The score of each step, the mean where several decisions were made at once; `None` where nobody judged.

    Args:
        episode: whose steps are scored.
        source: what the Interaction pays for a step (`"reward"`), or what an oracle says of it (`"verdict"`).
    """
    if source == "reward":
        return [step[0].reward for step in episode.steps]
    judged = [[one.verdict.score for one in step if one.verdict is not None] for step in episode.steps]
    return [sum(of_step) / len(of_step) if of_step else None for of_step in judged]


def pad_to_matrix(rows: Sequence[Sequence[float | None]]) -> tuple[Tensor, Tensor]:
    """Ragged rows as a (rollouts, turns) matrix of 64 bits, and where it holds a value; `None` is none."""
    width = max([len(row) for row in rows] + [1])
    padded = [value for row in rows for value in (*row, *[None] * (width - len(row)))]
    values = torch.tensor([value or 0.0 for value in padded], dtype=torch.float64)
    there = torch.tensor([value is not None for value in padded], dtype=torch.bool)
    return values.view(len(rows), width), there.view(len(rows), width)


def step_values(collected: RolloutBatch, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The Monte Carlo value before each step of some of the trained rollouts, as `pad_to_matrix` makes it.

    What was decided at once was decided in one state, and all rollouts from it count.

    Args:
        collected: of this process, with rollouts from the state before each decision.
        rows: the places of the rollouts, none of which failed.
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
    """The credit of turns for the decisions that they are made of.

    Args:
        collected: of this process.
        rows: the places of the trained rollouts that are credited; the others get nothing.
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
        rows: the places of the rollouts.
        anchor: what the decisions of two steps must have in common, beside their event types: the `"observation"`,
            the last message that was shown; the whole `"context"`, in tokens; or the `"state"` of the Interaction,
            which must be hashable.
        context: knows the Interaction.
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
    """A group of episodes for each task row whose turns have scores, and what an evaluation plays.

    Args:
        size: of the group, at least 2.
        source: as in `scores`.
    """
    group = Group(size=size)
    return (group, Single()) if source == "reward" else (Verified(inner=group), Verified(required=False))
