"""What an oracle is: it knows which actions are right in a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from hf_credit.environments.actions import plain_action
from hf_credit.environments.base import Environment, State

S = TypeVar("S", bound=State)
S_contra = TypeVar("S_contra", bound=State, contravariant=True)


@runtime_checkable
class Oracle(Protocol[S_contra]):
    """A verifier of single actions (paper VPR, section 2.1): a function of the state and the action alone.

    Any object with these two methods is an oracle; nothing needs to be inherited.
    """

    def valid_actions(self, state: S_contra) -> frozenset[str]:
        """The oracle-valid set A*(s), as plain actions; empty when the episode is over."""

    def score(self, state: S_contra, action: str) -> float:
        """The reward of `action` (a plain action or a reply with an action tag) in `state`, in [0, 1]."""


class ValidSetOracle(ABC, Generic[S]):
    """An oracle that is its valid set: `score` is 1 for a member and 0 for anything else (paper VPR, eq. 2).

    Class attributes:
        name: what `hf_credit.oracles.make` knows it by.
        environment_type: the environment whose states it understands.
    """

    name: ClassVar[str]
    environment_type: ClassVar[type[Environment[Any]]]

    @abstractmethod
    def valid_actions(self, state: S) -> frozenset[str]:
        """The oracle-valid set A*(s), as plain actions; empty when the episode is over."""

    def score(self, state: S, action: str) -> float:
        """1.0 if `action` is in `valid_actions(state)`, else 0.0."""
        return float(plain_action(action) in self.valid_actions(state))
