"""Checks that the state from which alternatives continue is a value that none of them changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hf_credit.rollouts.interaction import Interaction, Request


class SharedStateError(RuntimeError):
    """Alternatives of different states would be compared."""


class SharedStates:
    """Checks the states from which several episodes of one run continue.

    It compares the requests of a state (`Interaction.pending`) before each episode leaves it, with one call of
    `pending` per alternative. It does not detect changes that no message shows.
    """

    def __init__(self, interaction: Interaction[Any]) -> None:
        self.interaction = interaction
        self._first: dict[int, tuple[Any, Sequence[Request]]] = {}

    def enter(self, state: Any, seed: int | None, requests: Sequence[Request]) -> None:
        """Checks a recorded state when an episode starts from it.

        Args:
            state: the recorded state.
            seed: the new seed of the state; `None` if it was not reseeded.
            requests: the requests of the state with this seed.

        Raises:
            SharedStateError: the state is not a value, or its requests differ from those for another episode or from
                those before it was reseeded.
        """
        require_value(state)
        _, first = self._first.setdefault(id(state), (state, requests))  # the reference keeps the id unique
        if first != requests:
            self._refuse(state, "has changed since another episode started from it")
        if seed is not None and self.interaction.pending(state) != requests:
            self._refuse(state, "was changed by a new seed")

    def leave(self, state: Any, requests: Sequence[Request]) -> None:
        """Checks a shared state right before an episode leaves it.

        Args:
            requests: its requests when the episode entered it.

        Raises:
            SharedStateError: its requests have changed.
        """
        if self.interaction.pending(state) != requests:
            self._refuse(state, "has changed since its requests were made, by another alternative or by a new seed")

    def _refuse(self, state: Any, what: str) -> None:
        raise SharedStateError(
            "alternatives must continue from the same state, got one of type "
            f"{type(state).__qualname__} of {type(self.interaction).__qualname__} that {what}; let advance and reseed "
            "return a new state, and let a new seed change only the future."
        )


def require_value(state: Any) -> None:
    """Rejects states without a hash, or with a hash by identity instead of content."""
    try:
        hash(state)
        is_value = type(state).__hash__ is not object.__hash__
    except TypeError:
        is_value = False
    if not is_value:
        raise SharedStateError(
            "a state from which alternatives continue must be a value with a hash by content, got one of type "
            f"{type(state).__qualname__}; make it a frozen dataclass of numbers, strings and tuples."
        )
