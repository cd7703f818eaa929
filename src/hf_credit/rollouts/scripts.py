"""Scripted play: by an oracle with a chosen quality, and at random to collect the texts of a game."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hf_credit.environments import Environment
from hf_credit.environments.randomness import stream
from hf_credit.oracles import Oracle

if TYPE_CHECKING:
    from hf_credit.rollouts.interaction import Request

Script = Callable[[Any, "Request", random.Random], str]
"""The reply to a request in a state; its randomness comes only from the random stream."""


@runtime_checkable
class LikelyScript(Protocol):
    """A `Script` with the probabilities of its replies, which teach more than one sampled reply."""

    def __call__(self, state: Any, request: Request, draws: random.Random) -> str:
        """A sampled reply."""

    def probabilities(self, state: Any, request: Request) -> Mapping[str, float]:
        """The probability of every possible reply; they sum to 1."""


@dataclass(frozen=True)
class OraclePlayer:
    """A player of an `EnvironmentInteraction` who takes a uniformly drawn oracle-valid action with probability
    `quality`, and a uniformly drawn legal action otherwise.

    Args:
        environment: the game.
        oracle: with the valid actions.
        quality: in [0, 1].

    Raises:
        ValueError: `quality` is outside [0, 1].
    """

    environment: Environment[Any]
    oracle: Oracle[Any]
    quality: float

    def __post_init__(self) -> None:
        if not 0 <= self.quality <= 1:
            raise ValueError(f"quality must be in [0, 1], got {self.quality}; 1 plays as the oracle says.")

    def __call__(self, state: Any, request: Request, draws: random.Random) -> str:
        choices = self._valid(state) if draws.random() < self.quality else self._legal(state)
        return self.environment.write_action(str(draws.choice(choices)))

    def probabilities(self, state: Any, request: Request) -> dict[str, float]:
        shares: dict[str, float] = {}
        for weight, known in ((self.quality, self._valid), (1 - self.quality, self._legal)):
            choices = known(state) if weight else []
            for action in choices:
                reply = self.environment.write_action(action)
                shares[reply] = shares.get(reply, 0.0) + weight / len(choices)
        return shares

    def _valid(self, state: Any) -> list[str]:
        return self._known(self.oracle.valid_actions(state.world), state)

    def _legal(self, state: Any) -> list[str]:
        return self._known(self.environment.legal_actions(state.world), state)

    def _known(self, choices: Collection[str], state: Any) -> list[str]:
        if not choices:
            raise ValueError(
                f"an oracle must know a valid action in every state it scripts, got none in {state.world.to_json()}; "
                "mend its valid_actions."
            )
        return sorted(choices)


def random_texts(environment: Environment[Any], episodes: int) -> Iterator[str]:
    """Instructions, and the observations and actions of randomly played episodes."""
    yield environment.instructions
    for seed in range(episodes):
        draws = stream(seed, "tokenizer")
        state = environment.initial_state(environment.sample_task(seed), seed)
        yield environment.observe(state)
        yield environment.step(state, "").observation  # what an unreadable action is answered with
        for _ in range(environment.max_turns):
            actions = environment.legal_actions(state)
            if not actions:
                break
            yield from map(environment.write_action, actions)
            transition = environment.step(state, draws.choice(actions))
            state = transition.state
            yield transition.observation
