"""What an environment is: rules over an immutable state.

A state is a value. It holds everything the next observation, the next transition and every random draw depend
on, so an episode can be stopped, stored, resumed and replayed from any of its states.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from hf_credit.environments.actions import last_action, tag

Status = Literal["active", "finished", "invalid"]


def _freeze(value: Any) -> Any:
    """JSON knows lists only; a state holds tuples, all the way down, to stay hashable."""
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True)
class State:
    """A position of an environment, as a value.

    Subclasses are frozen dataclasses whose fields are `str`, `int`, `float`, `bool`, `None` or (nested) tuples of
    these, which makes them hashable and gives them JSON for free.

    Attributes:
        seed: the source of every random draw from here on; see `hf_credit.environments.randomness.stream`.
        status: `"active"` while an action is awaited, `"finished"` when the rules ended the episode, `"invalid"`
            when an illegal or unreadable action did.
    """

    seed: int
    status: Status = "active"

    def to_json(self) -> str:
        """The state as one line of JSON; `from_json` gives back an equal state."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The state that `to_json` wrote."""
        return cls(**{name: _freeze(value) for name, value in json.loads(text).items()})


S = TypeVar("S", bound=State)


@dataclass(frozen=True, kw_only=True)
class Transition(Generic[S]):
    """What one action led to.

    Attributes:
        state: the next state.
        observation: `observe(state)`.
        reward: the task reward of this action (paper VPR, eq. 1: nonzero only at the end of an episode).
        terminated: whether the episode is over.
        info: further facts, for people and logs; `info["action"]` is the action as read, or `None`.
    """

    state: S
    observation: str
    reward: float
    terminated: bool
    info: Mapping[str, Any] = field(default_factory=dict)


class Environment(ABC, Generic[S]):
    """The rules of a text world. Subclasses hold options only, never an episode and never a random stream.

    Class attributes:
        name: what `hf_credit.make` knows it by.
        state_type: its `State` subclass.
        task_columns: the columns a task row must have, beside `seed`.
        open_actions: whether actions are free text, so that `legal_actions` can only give some of them.
        forgiving: whether an illegal or unreadable action is answered and the episode goes on, at the cost of a turn.
        self_contained: whether an observation says all that matters without those before it. If not, an agent needs
            the whole conversation.
        reward_range: the least and the most that an action can be paid, `None` where that is not known.
        replayable: whether a state can be gone on from more than once. Where not, nothing is replayed.
        most_live: how many episodes can be under way at once, where none can be set aside; `None`: any number.
        slow_steps: how many steps may wait side by side, in threads; 1 where rules compute and wait for nothing.
        tools: that an agent is told of, as `transformers` chat templates take them: JSON schemas of functions.
    """

    name: ClassVar[str]
    state_type: ClassVar[type[State]]
    task_columns: ClassVar[tuple[str, ...]]
    open_actions: ClassVar[bool] = False
    forgiving: ClassVar[bool] = False
    self_contained: ClassVar[bool] = True
    reward_range: ClassVar[tuple[float, float] | None] = None
    replayable: bool = True
    most_live: int | None = None
    slow_steps: int = 1
    tools: tuple[Mapping[str, Any], ...] = ()

    @property
    @abstractmethod
    def instructions(self) -> str:
        """The rules and the format of an action, as shown once at the head of a prompt."""

    @property
    @abstractmethod
    def max_turns(self) -> int:
        """The most actions an episode can need, refused ones included; a rollout that goes on past it is cut."""

    @abstractmethod
    def sample_task(self, seed: int) -> dict[str, Any]:
        """A task, drawn from `seed` alone: a row of plain values that a `datasets.Dataset` can hold."""

    @abstractmethod
    def initial_state(self, task: Mapping[str, Any], seed: int) -> S:
        """The first state of `task`; `seed` drives everything random that happens after it."""

    @abstractmethod
    def observe(self, state: S) -> str:
        """What the agent sees of `state`."""

    @abstractmethod
    def legal_actions(self, state: S) -> tuple[str, ...]:
        """Every legal action in `state`, in its plain form and a fixed order; empty when the episode is over.

        With `open_actions` these are some of them, at least one: good examples to try or to imitate.
        """

    def read_action(self, reply: str) -> str:
        """The plain action that a reply takes; empty where it takes none. By default that in the last action tag."""
        return last_action(reply) or ""

    def write_action(self, action: str) -> str:
        """A reply that takes a plain action and says nothing else."""
        return tag(action)

    def answers_as(self, action: str) -> str:
        """The chat role of what an action is answered with: `"user"`, or `"tool"` for a tool call."""
        return "user"

    @abstractmethod
    def step(self, state: S, action: str) -> Transition[S]:
        """The transition of `action`: a plain action, or a reply that `read_action` finds one in.

        Never raises on any text. An illegal or unreadable action ends the episode with status `"invalid"`, unless the
        environment is `forgiving`. An action after the end changes nothing.
        """

    def answer_prompt(self, state: S) -> str | None:
        """What asks for the final answer in `state`, before its time; `None` in a world without final answers."""
        return None

    def force_answer(self, state: S) -> S:
        """`state` as it is when the answer is asked for before its time: the next reply is the last."""
        return state

    def _transition(self, state: S, reward: float, action: str | None, **info: Any) -> Transition[S]:
        """The transition to a state.

        Args:
            state: the next one.
            reward: of the action.
            action: as it was read, `None` where it could not be.
            **info: further facts.
        """
        return Transition(
            state=state,
            observation=self.observe(state),
            reward=reward,
            terminated=state.status != "active",
            info={"action": action, **info},
        )

    @abstractmethod
    def outcome(self, state: S) -> float:
        """The task reward of an episode that ended in `state`, wherever it was stopped."""

    @abstractmethod
    def metrics(self, state: S) -> dict[str, float]:
        """What is reported of an episode that ended in `state`; always has `success` (0 or 1)."""

    def costs(self) -> dict[str, float]:
        """What this object has spent so far beyond its rules, by name; nothing by default."""
        return {}
