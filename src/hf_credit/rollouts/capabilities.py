"""Optional capabilities of an Interaction, used as `Removable(interaction).without(...)`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from hf_credit.environments.tasks import Split
from hf_credit.oracles import Judge, Oracle
from hf_credit.oracles.auditing import Auditor, Interventions
from hf_credit.playing import History, Prompts
from hf_credit.renamed import old_names
from hf_credit.rollouts.interaction import Interaction, Message, Request, Wrapper, or_error
from hf_credit.rollouts.scripts import Script
from hf_credit.trust import class_name

if TYPE_CHECKING:
    from datasets import Dataset

    from hf_credit.rollouts.chat import Chat


class Capability:
    """Optional members of an Interaction.

    A subclass defines members for one kind of caller, with their default behaviour or an error. An Interaction that
    defines members of these names, some or all, overrides them; it needs no base class.
    """

    _shown_by: tuple[str, str] | None = None  # a flag, and the member whose definition sets it

    def __init__(self, interaction: Interaction[Any]) -> None:
        self.interaction = interaction
        if self._shown_by is not None:
            setattr(self, self._shown_by[0], hasattr(interaction, self._shown_by[1]))
        for name in vars(type(self)):
            if not name.startswith("_") and hasattr(interaction, name):
                setattr(self, name, getattr(interaction, name))


class ContextStyle(Capability):
    """The content of contexts.

    Attributes:
        history: as in `hf_credit.playing.Prompts`.
        words: whether any text can be asked of its roles; not if a reply is the number of an action.
    """

    history: History = Prompts.history
    words: bool = True

    def context_of(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Returns what of a recorded conversation the context of its next reply has."""
        return messages


class ReadsTokens(Capability):
    """The form of replies and of contexts.

    Attributes:
        reads_tokens: whether `advance` receives each reply as a `hf_credit.rollouts.interaction.Reply`, with tokens
            and tool calls, instead of only the text.
    """

    reads_tokens: bool = False

    def count_with(self, chat: Chat, most: int | None) -> None:
        """Receives, before episodes, what renders contexts, and the most tokens of one."""

    def too_long(self, state: Any, tokens: Mapping[str, int], most: int) -> Any:
        """Returns the state after requests with too long contexts were refused; `None` if the episode is truncated.

        If nothing is pending in it, its `reward` is one of the last replies.

        Args:
            tokens: of the contexts that are too long, by event type.
            most: the most tokens of a context.
        """
        return None


class TrainedRoles(Capability):
    """Which replies are trained on.

    Attributes:
        untrained: roles that are never trained. Their replies are part of the turn before them; other models than the
            policy may generate them.
    """

    untrained: Collection[str] = ()

    def trained(self, state: Any) -> bool:
        """Returns whether the replies of the turn before `state` may be trained on; if not, they get no credit.

        A turn is a step, with the steps of only `untrained` roles that follow it.
        """
        return True


class Batched(Capability):
    """Many parallel episodes.

    Attributes:
        most_live: maximum number of running episodes; unbounded if `None`.
        side_by_side: maximum number of parallel steps; with more than 1, `start_many` and `advance_many` may be called
            from several threads at once.
    """

    most_live: int | None = None
    side_by_side: int = 1

    def start_many(self, tasks: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[Any]:
        """Returns the result of `start` for many episodes: a state, or the exception that it raised."""
        return in_threads(1, self.interaction.start, tasks, seeds)

    def advance_many(self, states: Sequence[Any], replies: Sequence[Sequence[str]]) -> list[Any]:
        """Returns the result of `advance` for many episodes: a state, or the exception that it raised.

        By default up to `side_by_side` run in parallel; the results are those of running them in sequence.
        """
        return in_threads(self.side_by_side, self.interaction.advance, states, replies)


class Costs(Capability):
    """Costs of episodes beyond tokens."""

    def scores(self, state: Any) -> int:
        """Returns the number of scores, such as runs of a test suite or a judge, that `outcome(state)` computes."""
        return 1

    def costs(self) -> Mapping[str, float]:
        """Returns the costs so far in this process, by name; they never decrease."""
        return {}


class Interruptible(Capability):
    """Episodes that can be stopped before their end.

    Attributes:
        asks_for_answers: whether `answer_prompt` returns a prompt; by default, whether it is defined.
    """

    asks_for_answers: bool = False
    _shown_by = "asks_for_answers", "answer_prompt"

    def answer_prompt(self, state: Any) -> str | None:
        """Returns the prompt that requests the final answer in `state`; `None` if the task has none."""
        return None

    def force_answer(self, state: Any) -> Any:
        """Returns `state` after the answer was requested: the next reply is the last."""
        return state

    def bootstrap_requests(self, state: Any) -> tuple[Request, ...]:
        """Returns the next requests of an episode that was cut in `state` (`Ending.CUT`), for the critic's value."""
        return ()


class GoldAnswer(Capability):
    """Tasks whose right answer is known.

    Attributes:
        knows_answers: whether `gold_answer` returns an answer; by default, whether it is defined.
    """

    knows_answers: bool = False
    _shown_by = "knows_answers", "gold_answer"

    def gold_answer(self, state: Any) -> tuple[str, str] | None:
        """Returns a right reply in `state` up to its answer, such as `"<answer>"`, and the answer; `None` without one.

        The agent never sees it.
        """
        return None


class Replayable(Capability):
    """States that can be continued more than once, and in another process.

    Attributes:
        replayable: whether a state can be continued more than once.
        acts: whether actions reach what is outside of the states: files, servers, other programs.
    """

    replayable: bool = True
    acts: bool = False

    def check_repeats(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        """Checks with the first task rows, before a training with replays, that they will succeed.

        Raises:
            ValueError: an episode does not repeat itself.
        """

    def state_to_json(self, state: Any) -> str:
        """Returns `state` as one line of JSON, from which `state_from_json` makes an equal state.

        Raises:
            ValueError: the Interaction does not support it.
        """
        raise ValueError(
            f"states that leave the process must be written as JSON, got one of {self.interaction.name!r}, which does "
            "not support it; implement its methods `state_to_json` and `state_from_json`."
        )

    def state_from_json(self, text: str) -> Any:
        """Returns the state that `state_to_json` wrote.

        Raises:
            ValueError: the text is not such a state.
        """
        raise ValueError(
            f"states of another process must be read from JSON, got one of {self.interaction.name!r}, which does not "
            "support it; implement its methods `state_to_json` and `state_from_json`."
        )


class Removable(Capability):
    """Episodes without some of the roles.

    Attributes:
        removable: the roles that `without` can remove.
    """

    removable: Collection[str] = ()

    def without(self, state: Any, role: str) -> Any:
        """Returns `state` without the messages of `role` and those that depend on them.

        If `pending` is then empty, `outcome` is the outcome without the role; otherwise the other roles continue the
        episode. Several roles can be removed in sequence, in any order.

        Args:
            state: any state of an episode, including the first and the last.
            role: one of `removable`.

        Raises:
            ValueError: the role cannot be removed.
        """
        raise cannot_leave_out(self.interaction, role)


class Enumerable(Capability):
    """Enumeration of all replies.

    Attributes:
        enumerable: whether the replies are the only randomness, so that enumerating them gives exact values.
    """

    enumerable: bool = False


class OutcomeRange(Capability):
    """The range of outcomes.

    Attributes:
        outcome_range: minimum and maximum; `None` if unknown.
    """

    outcome_range: tuple[float, float] | None = None


Criteria = Mapping[str, tuple[bool, Collection[int]]]
"""For the name of each criterion that applies to an episode, whether it is met, and the numbers of the steps that show
it, counted from 0."""


class TaskCriteria(Capability):
    """Tasks that judge an episode once, by several criteria, such as those of a rubric.

    Attributes:
        judges: whether `criteria` returns any; by default, whether it is defined.
    """

    judges: bool = False
    _shown_by = "judges", "criteria"

    def criteria(self, state: Any) -> Criteria:
        """Returns the criteria that apply to an episode that ended in `state`.

        A slow judge is asked before, by `advance`, and its judgement is part of the state.
        """
        return {}


class Acting(Capability):
    """One agent whose replies are actions in an environment."""

    def as_asked(self, state: Any, event: str) -> Any:
        """Returns `state` with only the request of one event pending, to judge its reply."""
        return state

    def action_of(self, state: Any, reply: str) -> tuple[Any, str]:
        """Returns the environment's state and the action of a reply, the arguments of an oracle.

        The action is empty if the reply has none.

        Raises:
            ValueError: the Interaction has no environment.
        """
        raise ValueError(
            f"an oracle needs the actions of an environment, got a reply of {self.interaction.name!r}, which has no "
            "environment; leave the oracle out."
        )

    def write_action(self, action: str) -> str:
        """Returns a reply that consists of only an action of the environment.

        Raises:
            ValueError: the Interaction has no environment.
        """
        raise ValueError(
            f"an action needs an environment to be written as a reply, got {action!r} for {self.interaction.name!r}, "
            "which has none; pass the text of the reply."
        )

    def with_world(self, state: Any, world: Any) -> Any:
        """Returns `state` with another state of the environment, and its observation in place of the last one.

        Raises:
            ValueError: the Interaction has no environment.
        """
        raise ValueError(
            f"an intervention on a tool's result needs an environment, got {self.interaction.name!r}, which has none; "
            "leave such interventions out."
        )


class Oracled(Capability):
    """Tasks with an oracle."""

    def default_oracle(self) -> Oracle[Any] | None:
        """Returns the default oracle, if there is one."""
        return None

    def check_oracle(self, oracle: Oracle[Any] | None) -> Oracle[Any] | None:
        """Returns the given oracle, or the default one for `None`.

        Raises:
            ValueError: the oracle does not support the environment, or there is none.
        """
        if oracle is not None:
            raise no_oracle(self.interaction)
        return None

    def chosen(self, oracle: Oracle[Any] | None) -> Oracle[Any] | None:
        """Returns `check_oracle(oracle)`, or a `Judge`, which judges any task, after its own check."""
        if isinstance(oracle, Judge) and oracle.plays:
            require_replayable(self.interaction, f"the oracle {type(oracle).__name__}")
        return oracle.check() if isinstance(oracle, Judge) else self.check_oracle(oracle)


class Auditable(Capability):
    """Tasks with an auditor, which judges single steps by a record that the agent cannot modify."""

    def default_auditor(self) -> Auditor[Any] | None:
        """Returns the default auditor, if there is one."""
        return None

    def default_interventions(self) -> Interventions[Any] | None:
        """Returns the default interventions, if there are any."""
        return None

    def check_auditor(self, auditor: Auditor[Any] | None) -> Auditor[Any] | None:
        """Returns the given auditor, or the default one for `None`.

        Raises:
            ValueError: the auditor does not support the environment.
        """
        return self.default_auditor() if auditor is None else auditor


class TaskSource(Capability):
    """Generated task rows, and requirements for task rows.

    Attributes:
        seeded: whether every task row must have a seed, in the column `seed`.
    """

    seeded: bool = False

    def require_columns(self, columns: Iterable[str] | None) -> None:
        """Rejects task rows without the columns that `start` needs.

        Args:
            columns: the columns of the rows; `None` for a stream with unknown columns.

        Raises:
            ValueError: a column is missing.
        """

    def tasks(self, split: Split, size: int, start: int = 0) -> Dataset:
        """Returns rows `start` to `start + size - 1` of a split of generated tasks; values may be computed on access.

        Raises:
            ValueError: it does not generate tasks, or too few.
        """
        raise ValueError(
            f"{self.interaction.name!r} needs a dataset of tasks, got none; name one, with dataset_name in a recipe "
            "or --dataset in an evaluation."
        )


class Scripted(Capability):
    """Scripted play, to warm up a policy."""

    def scripted_player(self, quality: float) -> Script | None:
        """Returns a scripted player that is right with a probability of about `quality`; `None` if there is none.

        Args:
            quality: a probability, in [0, 1].

        Raises:
            ValueError: `quality` is outside [0, 1].
        """
        return None

    def texts(self, episodes: int) -> Iterable[str] | None:
        """Returns texts with every word of observations and replies, to build a tokenizer; `None` if the texts of
        scripted play suffice.

        Args:
            episodes: number of episodes to draw texts from.
        """
        return None


def no_oracle(interaction: Interaction[Any]) -> ValueError:
    """Returns the error for an oracle on an Interaction without an environment."""
    return ValueError(
        f"an oracle needs the actions of an environment, got one for {interaction.name!r}, which has no environment; "
        "leave it out."
    )


def cannot_leave_out(interaction: Interaction[Any], role: str) -> ValueError:
    """Returns the error for a role that an Interaction cannot remove."""
    return ValueError(
        f"a removed role must be among the removable roles of {interaction.name!r} "
        f"({', '.join(Removable(interaction).removable) or 'none'}), got {role!r}; implement its method `without`, "
        "and add the role to `removable`."
    )


def require_replayable(interaction: Interaction[Any], what: str) -> None:
    """Rejects an Interaction whose states cannot be continued more than once."""
    if not Replayable(interaction).replayable:
        raise ValueError(
            f"replays need an environment that is deterministic given seed and actions, got {what} for "
            f"{interaction.name!r}, which is not; use a method without replay, such as grpo, or fix the environment's "
            "seeds."
        )


def evaluated(interaction: Interaction[Any]) -> Interaction[Any]:
    """Returns the Interaction for evaluation: its `evaluated` if training changes it, otherwise itself."""
    return getattr(interaction, "evaluated", interaction)


def fingerprint(interaction: Interaction[Any]) -> dict[str, Any]:
    """Returns plain values that identify an Interaction: its `fingerprint()`, its `spec()`, or only its class."""
    if hasattr(interaction, "fingerprint"):
        return dict(interaction.fingerprint())
    try:
        return interaction.spec()
    except ValueError:
        described: dict[str, Any] = {"interaction": class_name(interaction)}
    if isinstance(interaction, Wrapper):
        plain = {
            name: value for name, value in vars(interaction).items() if isinstance(value, str | int | float | None)
        }
        described |= {"options": plain, "wraps": fingerprint(interaction.inner)}
    return described


def in_threads(threads: int, call: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
    """Returns the results of a call for many arguments, in up to some threads: a value, or the exception it raised."""
    threads = min(threads, len(arguments[0]))
    if threads <= 1:
        return [or_error(call, *own) for own in zip(*arguments, strict=True)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(or_error, itertools.repeat(call), *arguments))


if not TYPE_CHECKING:  # which would take any name for known
    _OLD = "Answered", "Bounded", "Judged", "Learned", "Metered", "Shown"
    _NEW = "GoldAnswer", "OutcomeRange", "TaskCriteria", "TrainedRoles", "Costs", "ContextStyle"
    __getattr__ = old_names(__name__, dict(zip(_OLD, _NEW, strict=True)))
