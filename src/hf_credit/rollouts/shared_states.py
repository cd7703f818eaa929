"""Alternatives go on from one state: it must be a value that none of them can change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hf_credit.rollouts.interaction import Interaction, Request


class SharedStateError(RuntimeError):
    """Alternatives are about to be compared that did not stand in one and the same state."""


class SharedStates:
    """Watches the states that several walks of one run go on from.

    What a state asks for (`Interaction.pending`) is compared before each walk leaves it, which costs one call of
    `pending` for every alternative. A difference that no message shows goes unnoticed.

    Args:
        interaction: what is played.
    """

    def __init__(self, interaction: Interaction[Any]) -> None:
        self.interaction = interaction
        self._first: dict[int, tuple[Any, Sequence[Request]]] = {}

    def enter(self, state: Any, seed: int | None, requests: Sequence[Request]) -> None:
        """Called when a walk begins in a recorded state.

        Args:
            state: the recorded one.
            seed: that it was reseeded with, if it was.
            requests: what the state asks for after that.

        Raises:
            SharedStateError: it is no value, it asked another walk for something else, or its new seed changed it.
        """
        require_value(state)
        _, first = self._first.setdefault(id(state), (state, requests))  # kept, so that no other gets its id
        if first != requests:
            self._refuse(state, "has changed since another walk began in it")
        if seed is not None and self.interaction.pending(state) != requests:
            self._refuse(state, "was changed by a new seed")

    def leave(self, state: Any, requests: Sequence[Request]) -> None:
        """Called right before a walk leaves a state that others leave, too.

        Args:
            state: where the walk stands.
            requests: what it was asked for.

        Raises:
            SharedStateError: the state no longer asks for that.
        """
        if self.interaction.pending(state) != requests:
            self._refuse(state, "has changed since it asked for replies, by another alternative or by a new seed")

    def _refuse(self, state: Any, what: str) -> None:
        raise SharedStateError(
            "alternatives must be compared in one and the same state, got one of type "
            f"{type(state).__qualname__} of {type(self.interaction).__qualname__} that {what}; let advance and reseed "
            "return a new state, and let a new seed change what is ahead alone."
        )


def require_value(state: Any) -> None:
    """Refuses states that cannot be told from what they were: those without a hash, or with that of their identity.

    Raises:
        SharedStateError: it is no value.
    """
    try:
        hash(state)
        is_value = type(state).__hash__ is not object.__hash__
    except TypeError:
        is_value = False
    if not is_value:
        raise SharedStateError(
            "a state that alternatives go on from must be a value that hashes by what it holds, got one of type "
            f"{type(state).__qualname__}; make it a frozen dataclass of numbers, strings and tuples."
        )
