"""Play from a script: by an oracle with a chosen quality, and at random to collect what a game says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from hf_credit.environments import Environment
from hf_credit.environments.randomness import stream
from hf_credit.oracles import Oracle

if TYPE_CHECKING:
    from hf_credit.rollouts.interaction import Request

Script = Callable[[Any, "Request", random.Random], str]
"""The reply to a request in a state; what is random in it comes from the random stream alone."""


def oracle_player(environment: Environment[Any], oracle: Oracle[Any], quality: float) -> Script:
    """A player of an `EnvironmentInteraction` who takes a uniformly drawn oracle-valid action with probability
    `quality`, and a uniformly drawn legal action otherwise.

    Raises:
        ValueError: `quality` is outside [0, 1].
    """
    if not 0 <= quality <= 1:
        raise ValueError(f"quality must be in [0, 1], got {quality}; 1 plays as the oracle says.")

    def script(state: Any, request: Request, draws: random.Random) -> str:
        valid = draws.random() < quality
        choices = oracle.valid_actions(state.world) if valid else environment.legal_actions(state.world)
        if not choices:
            raise ValueError(
                f"an oracle must know a valid action in every state it scripts, got none in {state.world.to_json()}; "
                "mend its valid_actions."
            )
        return environment.write_action(str(draws.choice(sorted(choices))))

    return script


def random_texts(environment: Environment[Any], episodes: int) -> Iterator[str]:
    """Instructions, and the observations and actions of randomly played episodes."""
    yield environment.instructions
    for seed in range(episodes):
        draws = stream(seed, "tokenizer")
        state = environment.initial_state(environment.sample_task(seed), seed)
        yield environment.observe(state)
        yield environment.step(state, "").observation  # what an unreadable action is answered with
        while actions := environment.legal_actions(state):
            yield from map(environment.write_action, actions)
            transition = environment.step(state, draws.choice(actions))
            state = transition.state
            yield transition.observation
