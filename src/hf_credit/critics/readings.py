"""What critics read of an episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hf_credit.rollouts import Episode
from hf_credit.rollouts.method_context import CriticInput


def joint_histories(episode: Episode) -> list[tuple[int, ...]]:
    """What a central critic reads before each decision: everything that any role was given or said until then.

    A context that continues what came before is not repeated.

    Args:
        episode: whose decisions are judged.
    """
    histories = []
    said: tuple[int, ...] = ()
    for decision in episode.decisions:
        context = decision.context_ids
        said = context if context[: len(said)] == said else said + context
        histories.append(said)
        said += decision.action_ids
    return histories


def context_readings(contexts: Sequence[tuple[int, ...]]) -> list[CriticInput]:
    """One value for each context, with all of it read."""
    return [CriticInput(ids=ids, at=(len(ids),)) for ids in contexts]


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the values of an episode stand in its readings: a reading, and the index among its places.

    Attributes:
        of_decisions: for each decision its actions, none where it is part of what was observed.
        beyond: the context that would have come next, where it is read.
    """

    of_decisions: tuple[tuple[tuple[int, int], ...], ...]
    beyond: tuple[int, int] | None = None


def own_readings(episode: Episode, tokens: bool = True, beyond: bool = False) -> tuple[list[CriticInput], Places]:
    """What a critic reads before each action: what the policy was given there, and nothing that others were.

    Contexts that continue what came before are one reading, so an episode whose history grows costs one pass over its
    tokens, however many turns it had.

    Args:
        episode: whose decisions are judged.
        tokens: whether each token of a reply is an action; if not, the reply is one.
        beyond: whether the context after a cut is read, too.
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

    def places(number: int, wanted: Sequence[int]) -> tuple[tuple[int, int], ...]:
        at[number].extend(wanted)
        return tuple((number, index) for index in range(len(at[number]) - len(wanted), len(at[number])))

    found = []
    for decision in episode.decisions:
        number, start = text_of(decision.event, decision.context_ids), len(decision.context_ids)
        actions = range(start, start + len(decision.action_ids)) if tokens else [start]
        found.append(places(number, [] if decision.observed else actions))
        texts[number].extend(decision.action_ids)
    context = episode.next_context if beyond else None
    last = None
    if context is not None and episode.decisions:
        (last,) = places(text_of(episode.decisions[-1].event, context), [len(context)])
    # Behind the last place there is nothing to be read for; a text without places is not read.
    number_of = {number: place for place, number in enumerate(number for number, own in enumerate(at) if own)}
    readings = [CriticInput(ids=tuple(texts[number][: at[number][-1]]), at=tuple(at[number])) for number in number_of]
    return readings, Places(
        of_decisions=tuple(tuple((number_of[number], index) for number, index in own) for own in found),
        beyond=None if last is None else (number_of[last[0]], last[1]),
    )
