"""Scripted play: by an oracle with a given quality, and at random to collect the texts of an environment."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from hf_credit.content import texts_in
from hf_credit.environments import Environment
from hf_credit.environments.randomness import stream
from hf_credit.oracles import Oracle
from hf_credit.rollouts.interaction import Request

Script = Callable[[Any, Request, random.Random], str]
"""Returns the reply to a request in a state; its only randomness is that of the last argument. Several
threads may call it at once."""


@runtime_checkable
class LikelyScript(Protocol):
    """A `Script` with the probabilities of its replies, from which a policy learns more than from one sample."""

    def __call__(self, state: Any, request: Request, draws: random.Random) -> str:
        """Returns a sampled reply."""

    def probabilities(self, state: Any, request: Request) -> Mapping[str, float]:
        """Returns the probability of every possible reply; they sum to 1."""


@dataclass(frozen=True)
class OraclePlayer:
    """Plays an `EnvironmentInteraction`: with probability `quality` a uniformly drawn action that the oracle calls
    valid, otherwise a uniformly drawn legal action.

    Args:
        oracle: the oracle of valid actions.
        quality: a probability, in [0, 1].

    Raises:
        ValueError: `quality` is outside [0, 1].
    """

    environment: Environment[Any]
    oracle: Oracle[Any]
    quality: float

    def __post_init__(self) -> None:
        if not 0 <= self.quality <= 1:
            raise ValueError(f"quality must be in [0, 1], got {self.quality}; use 1 for only valid actions.")

    def __call__(self, state: Any, request: Request, draws: random.Random) -> str:
        choices = self._valid(state) if draws.random() < self.quality else self._legal(state)
        return self.environment.write_action(str(draws.choice(choices)))

    def probabilities(self, state: Any, request: Request) -> dict[str, float]:
        found: dict[str, float] = {}
        for weight, actions in ((self.quality, self._valid), (1 - self.quality, self._legal)):
            choices = actions(state) if weight else []
            for action in choices:
                reply = self.environment.write_action(action)
                found[reply] = found.get(reply, 0.0) + weight / len(choices)
        return found

    def _valid(self, state: Any) -> list[str]:
        return self._nonempty(self.oracle.valid_actions(state.world), state)

    def _legal(self, state: Any) -> list[str]:
        return self._nonempty(self.environment.legal_actions(state.world), state)

    def _nonempty(self, choices: Collection[str], state: Any) -> list[str]:
        if not choices:
            raise ValueError(
                f"an oracle must have a valid action in every state of scripted play, got none in "
                f"{state.world.to_json()}; fix its valid_actions."
            )
        return sorted(choices)


def random_texts(environment: Environment[Any], episodes: int) -> Iterator[str]:
    """Yields the instructions of an environment, and the observations and actions of episodes of random play."""
    yield environment.instructions
    for seed in range(episodes):
        draws = stream(seed, "tokenizer")
        state = environment.initial_state(environment.sample_task(seed), seed)
        yield from texts_in(environment.observe(state))
        yield from texts_in(environment.step(state, "").observation)  # the observation after an unreadable action
        for _ in range(environment.max_turns):
            actions = environment.legal_actions(state)
            if not actions:
                break
            yield from map(environment.write_action, actions)
            transition = environment.step(state, draws.choice(actions))
            state = transition.state
            yield from texts_in(transition.observation)
