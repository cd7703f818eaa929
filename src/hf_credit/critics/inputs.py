"""What critics predict, and their inputs from episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hf_credit.rollouts import Context, Episode
from hf_credit.rollouts.method_context import CriticInput
from hf_credit.validators import one_of


@dataclass(frozen=True, kw_only=True)
class CriticSpec:
    """What a critic predicts at each position of an input.

    Args:
        output: a `"value"` in the unit of the reward, trained by squared error; a `"probability"`, by cross-entropy;
            or `"beliefs"`, a distribution over the values of each slot, by a linear head on the policy's hidden
            states.
        slots: number of values of each belief slot, at least 2; empty for other outputs.

    Raises:
        ValueError: `output` is unknown, or `slots` do not fit it.
    """

    output: str = "value"
    slots: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        one_of("output of a critic", self.output, ("value", "probability", "beliefs"))
        if (self.output == "beliefs") != bool(self.slots) or any(size < 2 for size in self.slots):
            raise ValueError(
                "slots must be numbers of at least 2 with output='beliefs' and empty otherwise, got "
                f"{list(self.slots)} with output={self.output!r}; change one."
            )


def joint_histories(episode: Episode) -> list[tuple[int, ...]]:
    """Returns the input of a central critic before each decision: the contexts and replies of all roles so far.

    A context that extends the history replaces it, so that nothing is repeated.
    """
    histories = []
    history: tuple[int, ...] = ()
    for decision in episode.decisions:
        context = decision.context_ids
        history = context if context[: len(history)] == history else history + context
        histories.append(history)
        history += decision.action_ids
    return histories


def context_inputs(contexts: Sequence[Context]) -> list[CriticInput]:
    """Returns the critic input of each context, with one position, at its end."""
    return [CriticInput(ids=ids, at=(len(ids),)) for ids in contexts]


def read_once(inputs: Sequence[CriticInput]) -> tuple[list[CriticInput], list[int]]:
    """Returns inputs that join one with those after it that extend it, and of each input its index there."""
    joined, numbers = list[CriticInput](), list[int]()
    for one in inputs:
        # An equal position has a target of its own.
        if joined and one.at[0] > joined[-1].at[-1] and one.ids[: len(joined[-1].ids)] == joined[-1].ids:
            joined[-1] = CriticInput(ids=one.ids, at=joined[-1].at + one.at)
        else:
            joined.append(one)
        numbers.append(len(joined) - 1)
    return joined, numbers


@dataclass(frozen=True, kw_only=True)
class Places:
    """The places of an episode's values in its critic inputs: pairs of an input and the index of a position in it.

    Attributes:
        of_decisions: the places of the actions of each decision; none for a decision of an untrained role.
        beyond: the place of the context after the last decision, if it has one.
    """

    of_decisions: tuple[tuple[tuple[int, int], ...], ...]
    beyond: tuple[int, int] | None = None


def policy_inputs(episode: Episode, tokens: bool = True, beyond: bool = False) -> tuple[list[CriticInput], Places]:
    """Returns the inputs of a critic that reads the policy's context before each action, and the places of its values.

    A context that extends the last one of its event type shares its input, so an episode with appended history costs
    one forward pass over its tokens, for any number of turns.

    Args:
        tokens: whether each token of a reply is an action; if not, each reply is one action.
        beyond: whether to include the context after a cut.
    """
    texts: list[list[int]] = []
    at: list[list[int]] = []
    open_texts: dict[str, int] = {}

    def text_of(event: str, context: tuple[int, ...]) -> int:
        number = open_texts.get(event)
        if number is None or tuple(texts[number]) != context[: len(texts[number])]:
            number = open_texts[event] = len(texts)
            texts.append([])
            at.append([])
        texts[number].extend(context[len(texts[number]) :])
        return number

    def places(number: int, positions: Sequence[int]) -> tuple[tuple[int, int], ...]:
        at[number].extend(positions)
        return tuple((number, index) for index in range(len(at[number]) - len(positions), len(at[number])))

    of_decisions = []
    for decision in episode.decisions:
        number, start = text_of(decision.event, decision.context_ids), len(decision.context_ids)
        actions = range(start, start + len(decision.action_ids)) if tokens else [start]
        of_decisions.append(places(number, [] if decision.observed else actions))
        texts[number].extend(decision.action_ids)
    context = episode.next_context if beyond else None
    last = None
    if context is not None and episode.decisions:
        (last,) = places(text_of(episode.decisions[-1].event, context), [len(context)])
    # Tokens after the last position, and texts without positions, are not needed.
    number_of = {number: index for index, number in enumerate(number for number, own in enumerate(at) if own)}
    inputs = [CriticInput(ids=tuple(texts[number][: at[number][-1]]), at=tuple(at[number])) for number in number_of]
    return inputs, Places(
        of_decisions=tuple(tuple((number_of[number], index) for number, index in own) for own in of_decisions),
        beyond=None if last is None else (number_of[last[0]], last[1]),
    )
