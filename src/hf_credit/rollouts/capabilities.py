"""What some tasks can do beyond an Interaction: whoever needs it asks, `Removable(interaction).without(...)`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hf_credit.environments.tasks import Split
from hf_credit.oracles import Oracle
from hf_credit.oracles.auditing import Auditor, Interventions
from hf_credit.rollouts.interaction import Interaction, Request
from hf_credit.rollouts.scripts import Script

if TYPE_CHECKING:
    from datasets import Dataset


class Capability:
    """An Interaction by members that not every one has.

    A subclass lists members that one caller asks for, each with what holds of a task without it: a default, or a
    refusal in one sentence. An Interaction has a capability by having members of these names, some or all; it derives
    from nothing for that.

    Args:
        interaction: whose members are taken where it has them.
    """

    def __init__(self, interaction: Interaction[Any]) -> None:
        self.interaction = interaction
        for name in vars(type(self)):
            if not name.startswith("_") and hasattr(interaction, name):
                setattr(self, name, getattr(interaction, name))


class Shown(Capability):
    """What a context shows.

    Attributes:
        history: `"current"` where a context holds the present only, not what was said before.
    """

    history: str = "append"


class ReadsTokens(Capability):
    """What is made of a reply.

    Attributes:
        reads_tokens: whether `advance` is handed each reply as a `hf_credit.rollouts.interaction.Reply`, with its
            tokens and its tool calls, in place of the text alone.
    """

    reads_tokens: bool = False


class Learned(Capability):
    """Whose replies are learned from.

    Attributes:
        untrained: the roles whose replies are never learned from. What they reply is part of the turn before it;
            others than the policy may speak for them.
    """

    untrained: Collection[str] = ()

    def trained(self, state: Any) -> bool:
        """Whether the replies of the turn that led to `state` may be trained on; without, they get no credit.

        A turn is a step, with the steps of `untrained` roles alone that follow it.
        """
        return True


class Batched(Capability):
    """Many episodes side by side.

    Attributes:
        most_live: how many can be under way at once; `None`: any number.
        side_by_side: how many steps may wait side by side, in threads: with more than 1, `start_many` and
            `advance_many` may be called from several threads at once.
    """

    most_live: int | None = None
    side_by_side: int = 1

    def start_many(self, tasks: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[Any]:
        """`start` of many walks, as `advance_many`."""
        return [start_or_error(self.interaction, task, seed) for task, seed in zip(tasks, seeds, strict=True)]

    def advance_many(self, states: Sequence[Any], replies: Sequence[Sequence[str]]) -> list[Any]:
        """`advance` of many walks: for each its state, or what was raised in it.

        Whoever has it may let them wait side by side; the result must be that of one after the other.
        """
        return one_after_another(self.interaction, states, replies)


class Metered(Capability):
    """What playing costs beyond tokens."""

    def scores(self, state: Any) -> int:
        """How many scores `outcome(state)` takes, each of which may be a test suite or a judge."""
        return 1

    def costs(self) -> Mapping[str, float]:
        """What playing has spent so far in this process, by name; each only ever grows."""
        return {}


class Interruptible(Capability):
    """Can be stopped before its end.

    Attributes:
        asks_for_answers: whether `answer_prompt` has anything to say; if left out, whether there is one.
    """

    asks_for_answers: bool = False

    def __init__(self, interaction: Interaction[Any]) -> None:
        self.asks_for_answers = hasattr(interaction, "answer_prompt")
        super().__init__(interaction)

    def answer_prompt(self, state: Any) -> str | None:
        """What asks for the final answer in `state`, before its time; `None` where the task has no such thing."""
        return None

    def force_answer(self, state: Any) -> Any:
        """`state` as it is when the answer is asked for before its time: the next reply is the last."""
        return state

    def bootstrap_requests(self, state: Any) -> tuple[Request, ...]:
        """What a walk that was cut in `state` (`Ending.CUT`) would have been asked for next, where that is worth
        something to a critic."""
        return ()


class Replayable(Capability):
    """States that can be gone on from more than once, and elsewhere.

    Attributes:
        replayable: whether a state can be gone on from more than once.
    """

    replayable: bool = True

    def state_to_json(self, state: Any) -> str:
        """`state` as one line of JSON, from which `state_from_json` makes an equal one.

        Raises:
            ValueError: its states cannot be written.
        """
        raise ValueError(
            f"states that leave the process must be written as JSON, got one of {self.interaction.name!r}, which does "
            "not say how; write its methods `state_to_json` and `state_from_json`."
        )

    def state_from_json(self, text: str) -> Any:
        """The state that `state_to_json` wrote.

        Raises:
            ValueError: the text is something else.
        """
        raise ValueError(
            f"states that come from elsewhere must be read from JSON, got one of {self.interaction.name!r}, which "
            "does not say how; write its methods `state_to_json` and `state_from_json`."
        )


class Removable(Capability):
    """Can be played without some of its roles.

    Attributes:
        removable: the roles that `without` can leave out.
    """

    removable: Collection[str] = ()

    def without(self, state: Any, role: str) -> Any:
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
        raise cannot_leave_out(self.interaction, role)


class Enumerable(Capability):
    """Can be gone through reply by reply.

    Attributes:
        enumerable: whether exact values can be had by enumeration of all replies: no randomness but that of replies.
    """

    enumerable: bool = False


class Bounded(Capability):
    """What its outcomes may be is known.

    Attributes:
        outcome_range: the least and the most; `None` where that is not known.
    """

    outcome_range: tuple[float, float] | None = None


class Acting(Capability):
    """One agent whose replies are actions in an environment."""

    def as_asked(self, state: Any, event: str) -> Any:
        """`state` as a reply in one event is judged in it: where several reply at once, that one waits alone."""
        return state

    def action_of(self, state: Any, reply: str) -> tuple[Any, str]:
        """What an oracle is asked about: the environment's state, and the plain action that a reply took in it.

        The action is empty where the reply took none.

        Raises:
            ValueError: there is no environment in it.
        """
        raise ValueError(
            f"an oracle judges the actions of an environment, got a reply of {self.interaction.name!r}, which has "
            "none."
        )

    def write_action(self, action: str) -> str:
        """A reply that takes a plain action of the environment and says nothing else.

        Raises:
            ValueError: there is no environment in it.
        """
        raise ValueError(
            f"an action is written where there is an environment, got {action!r} for {self.interaction.name!r}, which "
            "has none; give the words of the reply."
        )

    def with_world(self, state: Any, world: Any) -> Any:
        """`state` with the environment elsewhere: all that was said stays, but the last observation is `world`'s.

        Raises:
            ValueError: there is no environment in it.
        """
        raise ValueError(
            f"the state of an environment can be altered where there is one, got {self.interaction.name!r}, which has "
            "none; leave out interventions on what tools return."
        )


class Oracled(Capability):
    """Somebody knows the right moves."""

    def default_oracle(self) -> Oracle[Any] | None:
        """Who knows the right moves, where somebody does."""
        return None

    def check_oracle(self, oracle: Oracle[Any] | None) -> Oracle[Any] | None:
        """Who judges the actions: the given oracle, its own if `None`.

        Raises:
            ValueError: the oracle does not fit, or there is nothing to judge.
        """
        if oracle is not None:
            raise no_oracle(self.interaction)
        return None


class Auditable(Capability):
    """Somebody judges single steps by a record that the agent cannot touch."""

    def default_auditor(self) -> Auditor[Any] | None:
        """Who judges single steps, where somebody does."""
        return None

    def default_interventions(self) -> Interventions[Any] | None:
        """What may be put in the place of a step, where that is known."""
        return None

    def check_auditor(self, auditor: Auditor[Any] | None) -> Auditor[Any] | None:
        """Who judges single steps: the given auditor, its own if `None`.

        Raises:
            ValueError: the auditor does not fit.
        """
        return self.default_auditor() if auditor is None else auditor


class TaskSource(Capability):
    """Tasks of its own, and what task rows must have.

    Attributes:
        seeded: whether a task row must have a seed of its own, in the column `seed`.
    """

    seeded: bool = False

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
            f"{self.interaction.name!r} has no tasks of its own, got no dataset; name one, in a recipe with "
            "dataset_name and for an evaluation with --dataset."
        )


class Scripted(Capability):
    """Can be played without a policy, to warm one up."""

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


def no_oracle(interaction: Interaction[Any]) -> ValueError:
    """The refusal of an oracle for an Interaction that has nothing to judge."""
    return ValueError(
        f"an oracle judges the actions of an environment, got one for {interaction.name!r}, which has none; leave it "
        "out."
    )


def cannot_leave_out(interaction: Interaction[Any], role: str) -> ValueError:
    """The refusal of a role that an Interaction cannot be played without."""
    return ValueError(
        f"a role that is left out must be one that {interaction.name!r} can be played without, got {role!r}, and it "
        f"says so of {', '.join(Removable(interaction).removable) or 'none'}; write its method `without`, and name "
        "the role in `removable`."
    )


def require_replayable(interaction: Interaction[Any], what: str) -> None:
    """Refuses what replays in an Interaction whose states cannot be gone on from more than once.

    Args:
        interaction: that is played.
        what: replays, for the sentence.

    Raises:
        ValueError: it cannot be replayed.
    """
    if not Replayable(interaction).replayable:
        raise ValueError(
            f"what is replayed must repeat itself, got {what} for {interaction.name!r}, which does not: the same seed "
            "and actions led elsewhere; take a method without replay, such as grpo, or mend the environment's seeds."
        )


def evaluated(interaction: Interaction[Any]) -> Interaction[Any]:
    """What an evaluation plays: the Interaction itself, or its `evaluated` where it is changed for training only."""
    return getattr(interaction, "evaluated", interaction)


def fingerprint(interaction: Interaction[Any]) -> dict[str, Any]:
    """Plain values by which two can be told apart: its own `fingerprint()`, or `spec()`, or as much as can be told."""
    if hasattr(interaction, "fingerprint"):
        return dict(interaction.fingerprint())
    try:
        return interaction.spec()
    except ValueError:
        return {"interaction": class_name(interaction)}


def class_name(value: Any) -> str:
    """`"module:class"` of a value."""
    return f"{type(value).__module__}:{type(value).__qualname__}"


def one_after_another(
    interaction: Interaction[Any], states: Sequence[Any], replies: Sequence[Sequence[str]]
) -> list[Any]:
    """`advance` of many walks: for each its state, or what was raised in it."""
    return [advance_or_error(interaction, state, said) for state, said in zip(states, replies, strict=True)]


def start_or_error(interaction: Interaction[Any], task: Mapping[str, Any], seed: int) -> Any:
    """The first state of a task, or what `interaction` raised."""
    try:
        return interaction.start(task, seed)
    except Exception as error:
        return error


def advance_or_error(interaction: Interaction[Any], state: Any, replies: Sequence[str]) -> Any:
    """The state after the replies, or what `interaction` raised."""
    try:
        return interaction.advance(state, replies)
    except Exception as error:
        return error
