"""Optional capabilities of an Interaction, used as `Removable(interaction).without(...)`."""

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
    """Optional members of an Interaction.

    A subclass lists members for one kind of caller, each with the behaviour for a task without it: a default, or an
    error. An Interaction has a capability by defining members with these names, some or all; it needs no base class.

    Args:
        interaction: whose members are used if it defines them.
    """

    def __init__(self, interaction: Interaction[Any]) -> None:
        self.interaction = interaction
        for name in vars(type(self)):
            if not name.startswith("_") and hasattr(interaction, name):
                setattr(self, name, getattr(interaction, name))


class Shown(Capability):
    """The content of contexts.

    Attributes:
        history: `"current"` if a context holds only the current observation, without earlier messages.
    """

    history: str = "append"


class ReadsTokens(Capability):
    """The form of replies.

    Attributes:
        reads_tokens: whether `advance` receives each reply as a `hf_credit.rollouts.interaction.Reply`, with its
            tokens and its tool calls, instead of only the text.
    """

    reads_tokens: bool = False


class Learned(Capability):
    """Which replies are trained on.

    Attributes:
        untrained: the roles whose replies are never trained on. Their replies are part of the turn before them; models
            other than the policy may generate them.
    """

    untrained: Collection[str] = ()

    def trained(self, state: Any) -> bool:
        """Whether the replies of the turn before `state` may be trained on; otherwise they get no credit.

        A turn is a step, with the following steps of only `untrained` roles.
        """
        return True


class Batched(Capability):
    """Many parallel episodes.

    Attributes:
        most_live: maximum number of running episodes; `None`: any number.
        side_by_side: number of steps that may wait in parallel threads: with more than 1, `start_many` and
            `advance_many` may be called from several threads at once.
    """

    most_live: int | None = None
    side_by_side: int = 1

    def start_many(self, tasks: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[Any]:
        """`start` of many episodes, like `advance_many`."""
        return [start_or_error(self.interaction, task, seed) for task, seed in zip(tasks, seeds, strict=True)]

    def advance_many(self, states: Sequence[Any], replies: Sequence[Sequence[str]]) -> list[Any]:
        """`advance` of many episodes: for each its state, or the exception that it raised.

        An implementation may run them in parallel; the result must be that of running them in sequence.
        """
        return one_after_another(self.interaction, states, replies)


class Metered(Capability):
    """Costs of episodes beyond tokens."""

    def scores(self, state: Any) -> int:
        """Number of scores that `outcome(state)` computes, each of which may be a test suite or a judge."""
        return 1

    def costs(self) -> Mapping[str, float]:
        """Costs so far in this process, by name; none ever decreases."""
        return {}


class Interruptible(Capability):
    """Episodes that can be stopped before their end.

    Attributes:
        asks_for_answers: whether `answer_prompt` returns a prompt; by default, whether it is defined.
    """

    asks_for_answers: bool = False

    def __init__(self, interaction: Interaction[Any]) -> None:
        self.asks_for_answers = hasattr(interaction, "answer_prompt")
        super().__init__(interaction)

    def answer_prompt(self, state: Any) -> str | None:
        """The prompt that requests the final answer in `state`, early; `None` if the task has none."""
        return None

    def force_answer(self, state: Any) -> Any:
        """`state` after an early request for the answer: the next reply is the last."""
        return state

    def bootstrap_requests(self, state: Any) -> tuple[Request, ...]:
        """The next requests of an episode that was cut in `state` (`Ending.CUT`), for the critic's prediction."""
        return ()


class Replayable(Capability):
    """States that can be continued more than once, and in another process.

    Attributes:
        replayable: whether a state can be continued more than once.
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
    """Episodes without some of the roles.

    Attributes:
        removable: the roles that `without` can remove.
    """

    removable: Collection[str] = ()

    def without(self, state: Any, role: str) -> Any:
        """`state` as if `role` never replied: messages that do not depend on it stay, messages that do are removed.

        If `pending` is then empty, `outcome` is the outcome without the role. Otherwise the others continue from
        there. Roles are removed one after the other, in any order.

        Args:
            state: at any point of an episode, including its start and its end.
            role: one of `removable`.

        Raises:
            ValueError: it cannot be removed.
        """
        raise cannot_leave_out(self.interaction, role)


class Enumerable(Capability):
    """Enumeration of all replies.

    Attributes:
        enumerable: whether enumeration of all replies gives exact values: there is no randomness except that of
            replies.
    """

    enumerable: bool = False


class Bounded(Capability):
    """The range of outcomes.

    Attributes:
        outcome_range: minimum and maximum; `None` if unknown.
    """

    outcome_range: tuple[float, float] | None = None


class Acting(Capability):
    """One agent whose replies are actions in an environment."""

    def as_asked(self, state: Any, event: str) -> Any:
        """`state` for judging a reply in one event: of several simultaneous requests, only this one is pending."""
        return state

    def action_of(self, state: Any, reply: str) -> tuple[Any, str]:
        """The arguments of an oracle: the environment's state, and the plain action of a reply.

        The action is empty if the reply has none.

        Raises:
            ValueError: it has no environment.
        """
        raise ValueError(
            f"an oracle judges the actions of an environment, got a reply of {self.interaction.name!r}, which has "
            "none."
        )

    def write_action(self, action: str) -> str:
        """A reply that consists only of a plain action of the environment.

        Raises:
            ValueError: it has no environment.
        """
        raise ValueError(
            f"an action is written where there is an environment, got {action!r} for {self.interaction.name!r}, which "
            "has none; give the words of the reply."
        )

    def with_world(self, state: Any, world: Any) -> Any:
        """`state` with another state of the environment: all messages stay, but the last observation is `world`'s.

        Raises:
            ValueError: it has no environment.
        """
        raise ValueError(
            f"the state of an environment can be altered where there is one, got {self.interaction.name!r}, which has "
            "none; leave out interventions on what tools return."
        )


class Oracled(Capability):
    """Tasks with an oracle."""

    def default_oracle(self) -> Oracle[Any] | None:
        """The oracle, if there is one."""
        return None

    def check_oracle(self, oracle: Oracle[Any] | None) -> Oracle[Any] | None:
        """The oracle for the actions: the given one, its own if `None`.

        Raises:
            ValueError: the oracle does not fit, or there are no actions to judge.
        """
        if oracle is not None:
            raise no_oracle(self.interaction)
        return None


class Auditable(Capability):
    """Tasks with an auditor, which judges single steps by a record that the agent cannot modify."""

    def default_auditor(self) -> Auditor[Any] | None:
        """The auditor, if there is one."""
        return None

    def default_interventions(self) -> Interventions[Any] | None:
        """The replacements of a step, if they are known."""
        return None

    def check_auditor(self, auditor: Auditor[Any] | None) -> Auditor[Any] | None:
        """The auditor for single steps: the given one, its own if `None`.

        Raises:
            ValueError: the auditor does not fit.
        """
        return self.default_auditor() if auditor is None else auditor


class TaskSource(Capability):
    """The task's own rows, and requirements for task rows.

    Attributes:
        seeded: whether a task row must have its own seed, in the column `seed`.
    """

    seeded: bool = False

    def require_columns(self, columns: Iterable[str] | None) -> None:
        """Rejects task rows without the columns that `start` needs.

        Args:
            columns: of the rows; `None` for a stream with unknown columns.

        Raises:
            ValueError: a column is missing.
        """

    def tasks(self, split: Split, size: int, start: int = 0) -> Dataset:
        """Rows `start` to `start + size - 1` of a split of its own tasks; values may be computed on access.

        Raises:
            ValueError: it has no tasks of its own, or too few.
        """
        raise ValueError(
            f"{self.interaction.name!r} has no tasks of its own, got no dataset; name one, in a recipe with "
            "dataset_name and for an evaluation with --dataset."
        )


class Scripted(Capability):
    """Scripted play, to warm up a policy."""

    def scripted_player(self, quality: float) -> Script | None:
        """A scripted player that is right with a probability of about `quality`; `None` if there is none.

        Args:
            quality: in [0, 1].

        Raises:
            ValueError: `quality` is outside [0, 1].
        """
        return None

    def texts(self, episodes: int) -> Iterable[str] | None:
        """Texts with every word of observations and replies, to build a tokenizer; `None`: scripted play has them.

        Args:
            episodes: how many are drawn.
        """
        return None


def no_oracle(interaction: Interaction[Any]) -> ValueError:
    """The error for an oracle on an Interaction without actions to judge."""
    return ValueError(
        f"an oracle judges the actions of an environment, got one for {interaction.name!r}, which has none; leave it "
        "out."
    )


def cannot_leave_out(interaction: Interaction[Any], role: str) -> ValueError:
    """The error for a role that an Interaction cannot remove."""
    return ValueError(
        f"a role that is left out must be one that {interaction.name!r} can be played without, got {role!r}, and it "
        f"says so of {', '.join(Removable(interaction).removable) or 'none'}; write its method `without`, and name "
        "the role in `removable`."
    )


def require_replayable(interaction: Interaction[Any], what: str) -> None:
    """Rejects replays in an Interaction whose states cannot be continued more than once.

    Args:
        interaction: that is played.
        what: the component that replays, for the message.

    Raises:
        ValueError: it cannot be replayed.
    """
    if not Replayable(interaction).replayable:
        raise ValueError(
            f"what is replayed must repeat itself, got {what} for {interaction.name!r}, which does not: the same seed "
            "and actions led elsewhere; take a method without replay, such as grpo, or mend the environment's seeds."
        )


def evaluated(interaction: Interaction[Any]) -> Interaction[Any]:
    """The Interaction for evaluation: itself, or its `evaluated` if it is changed only for training."""
    return getattr(interaction, "evaluated", interaction)


def fingerprint(interaction: Interaction[Any]) -> dict[str, Any]:
    """Plain values that identify it: its own `fingerprint()`, or `spec()`, or as much as is known."""
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
    """`advance` of many episodes: for each its state, or the exception that it raised."""
    return [advance_or_error(interaction, state, said) for state, said in zip(states, replies, strict=True)]


def start_or_error(interaction: Interaction[Any], task: Mapping[str, Any], seed: int) -> Any:
    """The first state of a task, or the exception that `interaction` raised."""
    try:
        return interaction.start(task, seed)
    except Exception as error:
        return error


def advance_or_error(interaction: Interaction[Any], state: Any, replies: Sequence[str]) -> Any:
    """The state after the replies, or the exception that `interaction` raised."""
    try:
        return interaction.advance(state, replies)
    except Exception as error:
        return error
