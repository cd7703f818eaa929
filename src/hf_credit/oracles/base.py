"""The oracle protocol, and the oracle that scores by its set of valid actions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, runtime_checkable

from hf_credit.environments.actions import plain_action
from hf_credit.environments.base import Environment, State

S = TypeVar("S", bound=State)
S_contra = TypeVar("S_contra", bound=State, contravariant=True)

ACCEPTED_ABOVE = 0.5
"""An oracle accepts a move with a score above this: it is a valid action, and not one that is only not lost."""


@runtime_checkable
class Oracle(Protocol[S_contra]):
    """A verifier of single actions (paper VPR, section 2.1): a function of only the state and the action.

    Any object with these two methods is an oracle.
    """

    def valid_actions(self, state: S_contra) -> frozenset[str]:
        """Returns the oracle-valid set A*(s), as plain actions; empty when the episode is over."""

    def score(self, state: S_contra, action: str) -> float:
        """Returns the reward of `action` (a plain action or a reply with an action tag) in `state`, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """A decision to judge.

    Attributes:
        messages: what the policy saw, each with a `role` and a `content`.
        reply: what it answered.
        state: that of the environment before it; that of the Interaction if it has no environment.
        action: the action of the reply; the reply itself without an environment.
        episode: a number, the same for the moves of one episode, which follow each other.
        tools: that it could call, as in chat templates: JSON schemas of functions.
        interaction: the task, an `Interaction`; `None` for a text alone.
        before: the state of the interaction before it, from which it can be continued.
    """

    messages: Sequence[Mapping[str, Any]]
    reply: str
    state: Any
    action: str
    episode: int = 0
    tools: Sequence[Mapping[str, Any]] = ()
    interaction: Any = None
    before: Any = None


class Judge(ABC):
    """An oracle of whole decisions, many at once, which need no environment. It may leave some unknown.

    It lists no valid actions, so it cannot play.

    Class attributes:
        plays: whether it runs the code of the task, which other collections then wait for.
    """

    plays: ClassVar[bool] = False

    def valid_actions(self, state: Any) -> frozenset[str]:
        return frozenset()

    def score(self, state: Any, action: str) -> float:
        """Judges one action by the text of its state; NaN if that is unknown."""
        shown = {"role": "user", "content": str(state)}
        (found,) = self.judge([Move(messages=[shown], reply=action, state=state, action=action)], Counter())
        return math.nan if found is None else found

    def check(self) -> Self:
        """Returns itself, before a training or an evaluation.

        Raises:
            ValueError: it cannot judge.
        """
        return self

    @abstractmethod
    def judge(self, moves: Sequence[Move], costs: Counter[str]) -> Sequence[float | None]:
        """Returns the score of each move, in [0, 1]; `None` if it is unknown.

        Args:
            costs: to add what it took, by name; `tokens` are those of other models than the policy.
        """


def first_move(kind: str, judge: Any, environment: Environment[S]) -> tuple[str, S, str]:
    """Returns a judge's name, the first state of one task, and a legal action there, to test the judge with.

    Args:
        kind: of the judge, for an error.
        judge: optionally with a `name`, and the `environment_type` that it is made for.
        environment: that it shall judge.

    Raises:
        ValueError: the judge is made for another environment.
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
    """An oracle that scores 1 for the members of its valid set and 0 for anything else (paper VPR, eq. 2).

    Class attributes:
        name: its name for `hf_credit.oracles.make`.
        environment_type: the environment whose states it judges.
    """

    name: ClassVar[str]
    environment_type: ClassVar[type[Environment[Any]]]

    @abstractmethod
    def valid_actions(self, state: S) -> frozenset[str]:
        """Returns the oracle-valid set A*(s), as plain actions; empty when the episode is over."""

    def score(self, state: S, action: str) -> float:
        return float(plain_action(action) in self.valid_actions(state))
