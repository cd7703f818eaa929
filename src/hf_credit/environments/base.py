"""The interface of environments: rules over an immutable state."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from hf_credit.boundary import read
from hf_credit.content import Content
from hf_credit.environments.actions import last_action, tag
from hf_credit.safe_io import parse_json

Status = Literal["active", "finished", "invalid"]


def _freeze(value: Any) -> Any:
    """Turns JSON's lists into tuples, at every depth, so that states are hashable."""
    if isinstance(value, dict):
        return {name: _freeze(item) for name, item in value.items()}
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True)
class State:
    """A state of an environment: a value that the next observation, transition and random draws depend on alone.

    Subclasses are frozen dataclasses whose fields are `str`, `int`, `float`, `bool`, `None` or (nested) tuples of
    these. They are therefore hashable and convert to JSON.

    Attributes:
        seed: the source of all later random draws; see `hf_credit.environments.randomness.stream`.
        status: `"active"` while an action is awaited, `"finished"` when the rules ended the episode, `"invalid"`
            when an illegal or unreadable action did.
    """

    seed: int
    status: Status = "active"

    def to_json(self) -> str:
        """The state as one line of JSON; `from_json` restores an equal state."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads a state that `to_json` wrote.

        Raises:
            ValueError: the text is not such a state.
        """
        values = _freeze(parse_json(text, broken_text=True))
        return read(cls, values, f"a state ({cls.__name__})")  # type: ignore[no-any-return]


S = TypeVar("S", bound=State)


@dataclass(frozen=True, kw_only=True)
class Transition(Generic[S]):
    """The result of one action.

    Attributes:
        observation: `observe(state)`.
        reward: the reward of this action. In paper VPR (eq. 1) it is nonzero only at the end of an episode.
        terminated: whether the episode is over.
        info: further information for people and logs; `info["action"]` is the action as read, or `None`.
    """

    state: S
    observation: Content
    reward: float
    terminated: bool
    info: Mapping[str, Any] = field(default_factory=dict)


class Environment(ABC, Generic[S]):
    """The rules of a text environment. Subclasses hold options, never an episode or a random stream.

    Class attributes:
        name: its name for `hf_credit.make`.
        state_type: its `State` subclass.
        task_columns: the columns that a task row must have besides `seed`.
        open_actions: whether actions are free text, so that `legal_actions` can only give some of them.
        forgiving: whether an illegal or unreadable action costs a turn instead of ending the episode.
        self_contained: whether an observation contains everything relevant from earlier ones. If not, an agent needs
            the whole conversation.
        reward_range: the lowest and highest possible reward of an action, `None` if unknown.
        replayable: whether an episode can continue from a state more than once. If not, methods that replay refuse it.
        acts: whether actions reach what is outside of the states: files, servers, other programs.
        most_live: the most episodes that can run at once, if none can be suspended; `None`: any number.
        slow_steps: how many steps may run concurrently, in threads; 1 for rules that only compute.
        tools: the tools of the agent, as JSON schemas of functions for `transformers` chat templates.
    """

    name: ClassVar[str]
    state_type: ClassVar[type[State]]
    task_columns: ClassVar[tuple[str, ...]]
    open_actions: ClassVar[bool] = False
    forgiving: ClassVar[bool] = False
    self_contained: ClassVar[bool] = True
    reward_range: ClassVar[tuple[float, float] | None] = None
    replayable: bool = True
    acts: ClassVar[bool] = False
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
        """The most actions of an episode, refused ones included; longer rollouts are truncated."""

    @abstractmethod
    def sample_task(self, seed: int) -> dict[str, Any]:
        """A task, drawn from `seed` alone: a row of plain values that a `datasets.Dataset` can hold."""

    @abstractmethod
    def initial_state(self, task: Mapping[str, Any], seed: int) -> S:
        """The first state of `task`; `seed` determines all later random draws."""

    @abstractmethod
    def observe(self, state: S) -> Content:
        """The observation of the agent in `state`: text, or whatever `hf_credit.content.content_of` reads."""

    @abstractmethod
    def legal_actions(self, state: S) -> tuple[str, ...]:
        """Every legal action in `state`, as plain text and in a fixed order; empty after the end.

        With `open_actions`, some of the legal actions, at least one: good examples to try or to imitate.
        """

    def read_action(self, reply: str) -> str:
        """The plain action in a reply, empty if there is none. By default the one in the last action tag."""
        return last_action(reply) or ""

    def write_action(self, action: str) -> str:
        """A reply that contains a plain action and nothing else."""
        return tag(action)

    def answers_as(self, action: str) -> str:
        """The chat role of the observation after an action: `"user"`, or `"tool"` after a tool call."""
        return "user"

    @abstractmethod
    def step(self, state: S, action: str) -> Transition[S]:
        """Applies `action`: a plain action, or a reply from which `read_action` reads one.

        Never raises on any text. An illegal or unreadable action ends the episode with status `"invalid"`, unless the
        environment is `forgiving`. An action after the end changes nothing.
        """

    def answer_prompt(self, state: S) -> str | None:
        """The prompt that asks early for the final answer; `None` if the environment has no final answers."""
        return None

    def force_answer(self, state: S) -> S:
        """`state` after the answer was asked for early: the next reply is the last."""
        return state

    def gold_answer(self, state: S) -> tuple[str, str] | None:
        """A right final reply up to its answer, such as `"<answer>"`, and the answer; `None` if there is none."""
        return None

    def _transition(self, state: S, reward: float, action: str | None, **info: Any) -> Transition[S]:
        over, told = state.status != "active", {"action": action, **info}
        return Transition(state=state, observation=self.observe(state), reward=reward, terminated=over, info=told)

    @abstractmethod
    def outcome(self, state: S) -> float:
        """The task reward of an episode that ended in `state`, wherever it was stopped."""

    def release(self, state: S) -> None:
        """Called once an episode has ended in `state`: frees what only its further steps would need."""

    @abstractmethod
    def metrics(self, state: S) -> dict[str, float]:
        """The metrics of an episode that ended in `state`; always includes `success` (0 or 1)."""

    def costs(self) -> dict[str, float]:
        """The costs of this object so far, such as model calls, by name; none by default."""
        return {}
