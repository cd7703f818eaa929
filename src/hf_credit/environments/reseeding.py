"""Replays from a state with new random draws, and a check that a new seed does not change the past of a state."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from hf_credit.environments.base import Environment, State
from hf_credit.environments.randomness import derive

S = TypeVar("S", bound=State)

_SEEDS = 3
_STATES = 8
_PAST = "a new seed must change only the future of a state"


def reseed(state: S, seed: int) -> S:
    """`state` with the same past and new random draws in the future.

    Replays, alternatives and Monte Carlo rollouts start with this, so that their random draws are independent. An
    environment must draw a step's randomness from the seed of its state, and keep earlier draws in other fields: if it
    recomputed the past from the seed, its state would differ from what the prompt shows.

    """
    return dataclasses.replace(state, seed=derive(state.seed, "reseed", seed))


def reseed_problems(environment: Environment[Any], states: Sequence[State]) -> Iterator[tuple[str, str]]:
    """The first value that a new seed changes, in up to eight states of an episode, with three seeds in each.

    It compares the observation, the legal actions, the outcome and the metrics; and, unless the environment is
    forgiving, the results of an unreadable reply, which ends the episode without a random draw.

    """
    count = min(len(states), _STATES)
    for index in sorted({place * (len(states) - 1) // max(count - 1, 1) for place in range(count)}):
        state = states[index]
        known = _seen(environment, state)
        for seed in range(_SEEDS):
            other = _seen(environment, reseed(state, seed))
            for what, value in known.items():
                if other[what] != value:
                    yield _PAST, f"{what} of {state!r} was {value!r} and is {other[what]!r} with another seed"
                    return


def _seen(environment: Environment[Any], state: State) -> dict[str, Any]:
    seen: dict[str, Any] = {
        "observe": environment.observe(state),
        "legal_actions": environment.legal_actions(state),
        "outcome": environment.outcome(state),
        "metrics": environment.metrics(state),
    }
    if environment.forgiving:
        return seen
    refused = environment.step(state, "")
    return {
        **seen,
        "the result of an unreadable reply": (
            refused.observation,
            refused.reward,
            environment.outcome(refused.state),
            environment.metrics(refused.state),
        ),
    }
