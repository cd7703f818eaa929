"""Alternatives continue from one state: it must be a value that none of them can change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hf_credit.rollouts.interaction import Interaction, Request


class SharedStateError(RuntimeError):
    """Alternatives that were not in the same state would be compared."""


class SharedStates:
    """Checks the states from which several walks of one run continue.

    The requests of a state (`Interaction.pending`) are compared before each walk leaves it, which costs one call of
    `pending` for every alternative. A change that no message shows is not noticed.

    Args:
        interaction: the task to play.
    """

    def __init__(self, interaction: Interaction[Any]) -> None:
        self.interaction = interaction
        self._first: dict[int, tuple[Any, Sequence[Request]]] = {}

    def enter(self, state: Any, seed: int | None, requests: Sequence[Request]) -> None:
        """Called when a walk begins in a recorded state.

        Args:
            state: the recorded one.
            seed: with which it was reseeded, if it was.
            requests: the requests of the state after that.

        Raises:
            SharedStateError: it is not a value, it had other requests for another walk, or its new seed changed them.
        """
        require_value(state)
        _, first = self._first.setdefault(id(state), (state, requests))  # kept, so that no other gets its id
        if first != requests:
            self._refuse(state, "has changed since another walk began in it")
        if seed is not None and self.interaction.pending(state) != requests:
            self._refuse(state, "was changed by a new seed")

    def leave(self, state: Any, requests: Sequence[Request]) -> None:
        """Called right before a walk leaves a state that others leave too.

        Args:
            state: of the walk.
            requests: of the walk.

        Raises:
            SharedStateError: the state no longer has these requests.
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
    """Rejects states without a hash by content: those without a hash, or with that of their identity.

    Raises:
        SharedStateError: it is not a value.
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
