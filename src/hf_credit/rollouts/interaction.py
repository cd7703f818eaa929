"""Who acts when, on which messages: the one interface between rollouts and tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hf_credit.environments.tasks import Split
from hf_credit.oracles import Oracle
from hf_credit.oracles.auditing import Auditor, Interventions
from hf_credit.registry import name_of, remembered
from hf_credit.rollouts.episode import Ending
from hf_credit.rollouts.scripts import Script

if TYPE_CHECKING:
    from datasets import Dataset

S = TypeVar("S")
Message = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A reply is wanted.

    Attributes:
        role: who is to reply, hence which policy does.
        messages: the conversation so far as that role sees it, in chat form (`role`, `content`).
        event: the type of the event this is (paper C3, eq. 1); the role itself if left out. An event type has one
            conversation, so what is asked at once is of different types.
    """

    role: str
    messages: Sequence[Message]
    event: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "event", self.event or self.role)


class Interaction(ABC, Generic[S]):
    """A task as a walk over states that are values, so that a walk can start again from any of them.

    A single agent in an environment, a reasoner followed by an actor and a vote of K agents are all Interactions.
    An Interaction holds options only. None of its methods may change anything but what they return.

    It also says of itself what others have to know: `name`, `roles`, `max_replies`, the columns and the tasks it
    plays, who knows the right moves, who plays from a script, and `spec()`, from which it is built again.

    Attributes:
        roles: who speaks, where it is known beforehand.
        max_replies: how many replies an episode has at most, where it is known.
        seeded: whether a task row must have a seed of its own, in the column `seed`.
        history: `"current"` where a context holds the present only, not what was said before.
        enumerable: whether exact values can be had by enumeration of all replies: no randomness but that of replies.
        tools: that the chat template shows to whoever speaks: JSON schemas of functions.
        replayable: whether a state can be gone on from more than once.
        most_live: how many episodes can be under way at once; `None`: any number.
        removable: the roles that `without` can leave out.
        untrained: the roles whose replies are never learned from. What they reply is part of the turn before it;
            others than the policy may speak for them.
    """

    roles: Collection[str] = ()
    removable: Collection[str] = ()
    untrained: Collection[str] = ()
    max_replies: int | None = None
    seeded: bool = False
    history: str = "append"
    enumerable: bool = False
    tools: Sequence[Mapping[str, Any]] = ()
    replayable: bool = True
    most_live: int | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return name_of(self) or type(self).__name__

    @property
    def evaluated(self) -> Interaction[Any]:
        """What an evaluation plays: itself, unless it is changed for training only."""
        return self

    def spec(self) -> dict[str, Any]:
        """Plain values, as JSON has them, from which `hf_credit.tasks.TaskSpec` builds it again.

        Either `environment` and `environment_options`, `history`, `instructions` and `max_turns`, or `collaboration`
        and `collaboration_options`: the name, or `"module:factory"`, of what returns it, and every argument of that.
        What `hf_credit.collaborations.make` or a factory with `hf_credit.registry.remembers_its_call` returned knows
        these.

        Raises:
            ValueError: it cannot be told, in one sentence.
        """
        noted = remembered(self)
        if noted is None:
            raise ValueError(
                f"an Interaction is described by the factory that made it, got a {type(self).__name__} made by hand; "
                "make it with hf_credit.collaborations.make('module:factory'), or give it a spec() of its own."
            )
        return {"collaboration": noted[0], "collaboration_options": noted[1]}

    def fingerprint(self) -> dict[str, Any]:
        """Plain values by which two can be told apart: `spec()`, or as much of it as can be told."""
        try:
            return self.spec()
        except ValueError:
            return {"interaction": f"{type(self).__module__}:{type(self).__qualname__}"}

    def default_oracle(self) -> Oracle[Any] | None:
        """Who knows the right moves, where somebody does."""
        return None

    def default_auditor(self) -> Auditor[Any] | None:
        """Who judges single steps by a record that the agent cannot touch, where somebody does."""
        return None

    def default_interventions(self) -> Interventions[Any] | None:
        """What may be put in the place of a step, where that is known."""
        return None

    def check_oracle(self, oracle: Oracle[Any] | None) -> Oracle[Any] | None:
        """Who judges the actions: the given oracle, its own if `None`.

        Raises:
            ValueError: the oracle does not fit, or there is nothing to judge.
        """
        if oracle is not None:
            raise ValueError(
                f"an oracle judges the actions of an environment, got one for {self.name!r}, which has none; leave it "
                "out."
            )
        return None

    def check_auditor(self, auditor: Auditor[Any] | None) -> Auditor[Any] | None:
        """Who judges single steps: the given auditor, its own if `None`.

        Raises:
            ValueError: the auditor does not fit.
        """
        return self.default_auditor() if auditor is None else auditor

    def action_of(self, state: S, reply: str) -> tuple[Any, str]:
        """What an oracle is asked about: the environment's state, and the plain action that a reply took in it.

        The action is empty where the reply took none.

        Raises:
            ValueError: there is no environment in it.
        """
        raise ValueError(
            f"an oracle judges the actions of an environment, got a reply of {self.name!r}, which has none."
        )

    def write_action(self, action: str) -> str:
        """A reply that takes a plain action of the environment and says nothing else.

        Raises:
            ValueError: there is no environment in it.
        """
        raise ValueError(
            f"an action is written where there is an environment, got {action!r} for {self.name!r}, which has none; "
            "give the words of the reply."
        )

    def scripted_player(self, quality: float) -> Script | None:
        """Who plays it from a script, right with a probability of about `quality`; `None` where nobody knows how.

        Args:
            quality: in [0, 1].

        Raises:
            ValueError: `quality` is outside [0, 1].
        """
        return None

    def texts(self, episodes: int) -> Iterable[str] | None:
        """Texts with every word that may be shown or replied, to build a tokenizer of; `None`: scripted play has them.

        Args:
            episodes: how many are drawn.
        """
        return None

    def require_columns(self, columns: Iterable[str] | None) -> None:
        """Refuses task rows that lack what `start` shows.

        Args:
            columns: of the rows; `None` of a stream that does not know its own.

        Raises:
            ValueError: a column is missing.
        """

    def tasks(self, split: Split, size: int, start: int = 0) -> Dataset:
        """Rows `start` to `start + size - 1` of a split of its own tasks; they may hold what is made when it is read.

        Raises:
            ValueError: it has no tasks of its own, or not these.
        """
        raise ValueError(
            f"{self.name!r} has no tasks of its own, got no dataset; name one, in a recipe with dataset_name and for "
            "an evaluation with --dataset."
        )

    @abstractmethod
    def start(self, task: Mapping[str, Any], seed: int) -> S:
        """The first state of a task; `seed` drives everything random that happens after it."""

    @abstractmethod
    def pending(self, state: S) -> tuple[Request, ...]:
        """Who acts now, and on which messages; empty when the walk is over."""

    @abstractmethod
    def advance(self, state: S, replies: Sequence[str]) -> S:
        """The state after the replies to `pending(state)`, in its order."""

    def advance_many(self, states: Sequence[S], replies: Sequence[Sequence[str]]) -> list[S | Exception]:
        """`advance` of many walks: for each its state, or what was raised in it. One after the other by default.

        Whoever overrides it may let them wait side by side; the result must be the same. An Interaction round another
        hands it on, or loses that.
        """
        return [advance_or_error(self, state, own) for state, own in zip(states, replies, strict=True)]

    def costs(self) -> Mapping[str, float]:
        """What playing has spent so far in this process, beyond tokens, by name; each only ever grows."""
        return {}

    @abstractmethod
    def outcome(self, state: S) -> float:
        """What a walk that ended in `state` was worth."""

    def reward(self, state: S) -> float:
        """What the step that led to `state` paid."""
        return 0.0

    def trained(self, state: S) -> bool:
        """Whether the replies of the turn that led to `state` may be trained on; without, they get no credit.

        A turn is a step, with the steps of `untrained` roles alone that follow it.
        """
        return True

    def ending(self, state: S) -> Ending:
        """How a walk that is over in `state` ended."""
        return Ending.FINISHED

    def bootstrap_requests(self, state: S) -> tuple[Request, ...]:
        """What a walk that was cut in `state` (`Ending.CUT`) would have been asked for next, where that is worth
        something to a critic."""
        return ()

    @property
    def asks_for_answers(self) -> bool:
        """Whether `answer_prompt` has anything to say."""
        return type(self).answer_prompt is not Interaction.answer_prompt

    def answer_prompt(self, state: S) -> str | None:
        """What asks for the final answer in `state`, before its time; `None` where the task has no such thing."""
        return None

    def force_answer(self, state: S) -> S:
        """`state` as it is when the answer is asked for before its time: the next reply is the last."""
        return state

    def metrics(self, state: S) -> Mapping[str, float]:
        """What is reported of a walk that ended in `state`."""
        return {}

    def scores(self, state: S) -> int:
        """How many scores `outcome(state)` takes, each of which may be a test suite or a judge."""
        return 1

    def without(self, state: S, role: str) -> S:
        """`state` as if `role` had never spoken, nor ever would: what others said without having heard it stays, what
        was said by those who had is gone.

        Where `pending` then asks for nothing, `outcome` is what the walk was worth without the role. Otherwise the
        others go on from there. Roles are left out one after the other, in any order.

        Args:
            state: of a walk at any point of it, its start and its end included.
            role: one of `removable`.

        Raises:
            ValueError: it cannot be left out.
        """
        raise ValueError(
            f"a role that is left out must be one that {self.name!r} can be played without, got {role!r}, and it "
            f"says so of {', '.join(self.removable) or 'none'}; write its method `without`, and name the role in "
            "`removable`."
        )

    def with_world(self, state: S, world: Any) -> S:
        """`state` with the environment elsewhere: all that was said stays, but the last observation is `world`'s.

        Raises:
            ValueError: there is no environment in it.
        """
        raise ValueError(
            f"the state of an environment can be altered where there is one, got {self.name!r}, which has none; leave "
            "out interventions on what tools return."
        )

    def reseed(self, state: S, seed: int) -> S:
        """`state` with other randomness ahead of it and the same past; by default there is no randomness.

        `pending` must ask for the same as before: an engine that finds another message refuses to go on.
        """
        return state

    def state_to_json(self, state: S) -> str:
        """`state` as one line of JSON, from which `state_from_json` makes an equal one.

        Raises:
            ValueError: its states cannot be written.
        """
        raise ValueError(
            f"states that leave the process must be written as JSON, got one of {self.name!r}, which does not say "
            "how; write its methods `state_to_json` and `state_from_json`."
        )

    def state_from_json(self, text: str) -> S:
        """The state that `state_to_json` wrote.

        Raises:
            ValueError: the text is something else.
        """
        raise ValueError(
            f"states that come from elsewhere must be read from JSON, got one of {self.name!r}, which does not say "
            "how; write its methods `state_to_json` and `state_from_json`."
        )


@contextmanager
def readable_state(interaction: Interaction[Any]) -> Iterator[None]:
    """Says in one sentence that what is read here is no state of an Interaction.

    Raises:
        ValueError: it is not.
    """
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"a state must be one that {interaction.name!r} wrote, got {type(error).__name__}: {str(error)[:200]}; "
            "use the task and the version it was written with."
        ) from None


def require_replayable(interaction: Interaction[Any], what: str) -> None:
    """Refuses what replays in an Interaction whose states cannot be gone on from more than once.

    Args:
        interaction: that is played.
        what: replays, for the sentence.

    Raises:
        ValueError: it cannot be replayed.
    """
    if not interaction.replayable:
        raise ValueError(
            f"what is replayed must repeat itself, got {what} for {interaction.name!r}, which does not: the same seed "
            "and actions led elsewhere; take a method without replay, such as grpo, or mend the environment's seeds."
        )


def advance_or_error(interaction: Interaction[Any], state: Any, replies: Sequence[str]) -> Any:
    """The state after the replies, or what `interaction` raised."""
    try:
        return interaction.advance(state, replies)
    except Exception as error:
        return error
