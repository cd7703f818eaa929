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


def first_move(kind: str, judge: Any, environment: Environment[S]) -> tuple[str, S, str]:
    """What a judge of actions is tried on: its name, the first state of one task, and a legal action there.

    Args:
        kind: what it is called in an error.
        judge: perhaps with a `name`, and an `environment_type` that it is made for.
        environment: that it is to judge.

    Raises:
        ValueError: it is made for another environment.
    """
    name = getattr(judge, "name", type(judge).__name__)
    made_for = getattr(judge, "environment_type", object)
    if not isinstance(environment, made_for):
        raise ValueError(
            f"the {kind} must be made for the environment {environment.name!r}, got {name!r} for "
            f"{made_for.__name__}; choose another {kind}."
        )
    state = environment.initial_state(environment.sample_task(0), 0)
    return name, state, environment.legal_actions(state)[0]


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
