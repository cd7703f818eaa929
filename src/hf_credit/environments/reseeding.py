"""Another future for the same past: what a new seed may change of a state, and a check that it does no more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from hf_credit.environments.base import Environment, State
from hf_credit.environments.randomness import derive

S = TypeVar("S", bound=State)

_SEEDS = 3
_STATES = 8
_BEHIND = "a new seed must change what is ahead of a state and nothing behind it"


def reseed(state: S, seed: int) -> S:
    """`state` with other random draws ahead of it and the same past.

    Replays, alternatives and Monte Carlo rollouts begin with this, so that each meets a world of its own from a
    recorded state on. An environment draws what happens in a step from the seed of that state, and keeps in the
    state's other fields whatever was drawn before. One that makes its position again from the seed, by playing the
    actions so far once more, would stand elsewhere than the prompt shows.

    Args:
        state: a state of any environment.
        seed: names the new future.
    """
    return dataclasses.replace(state, seed=derive(state.seed, "reseed", seed))


def reseed_problems(environment: Environment[Any], states: Sequence[State]) -> Iterator[tuple[str, str]]:
    """Where a new seed changes the past, in up to eight states of an episode, with three seeds in each.

    Compared are the observation, the legal actions, the outcome and the metrics; and, as the sight of what has
    happened until then, all that an unreadable reply leads to, since it ends the episode without a random draw; not so
    where the environment is forgiving, and the world goes on.

    Args:
        environment: that they are of.
        states: of one episode, in order.
    """
    count = min(len(states), _STATES)
    places = sorted({place * (len(states) - 1) // max(count - 1, 1) for place in range(count)})
    for place in places:
        state = states[place]
        known = _seen(environment, state)
        for seed in range(_SEEDS):
            other = _seen(environment, reseed(state, seed))
            for what, value in known.items():
                if other[what] != value:
                    yield _BEHIND, f"{what} of {state!r} was {value!r} and is {other[what]!r} with another seed"
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
        "what an unreadable reply leads to": (
            refused.observation,
            refused.reward,
            environment.outcome(refused.state),
            environment.metrics(refused.state),
        ),
    }
