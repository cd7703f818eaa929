"""What critics read of an episode, and the values they give there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hf_credit.critics.critic import Critic
from hf_credit.rollouts import Episode, Row
from hf_credit.rollouts.batches import pad_rows
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


class ReadingCritic:
    """A critic that is asked about readings and taught by them.

    Args:
        critic: says and learns.
        max_tokens: of a text the critic reads the last so many; all if `None`. A place that is cut off has the value
            of the first token that is left.
    """

    def __init__(self, critic: Critic, max_tokens: int | None = None) -> None:
        self.critic = critic
        self.max_tokens = max_tokens

    def __call__(self, readings: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        """The values at the places of each reading."""
        if not readings:
            return []
        rows = [self._row(reading) for reading in readings]
        values = self.critic.values(pad_rows(rows, self.critic.pad_token_id)).tolist()
        return [
            tuple(own[place] for place in self._places(reading)) for own, reading in zip(values, readings, strict=True)
        ]

    def fit(
        self, readings: Sequence[CriticInput], targets: Sequence[Sequence[float]], values: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        """Moves the values towards their targets; called on all processes at the same time, also without readings.

        Args:
            readings: as they were read.
            targets: the value there should be at each place of each.
            values: what was said there before.

        Returns:
            As `Critic.fit`.
        """
        if not readings:
            nothing = torch.zeros(0)
            return self.critic.fit_contexts([], nothing, nothing)
        batch = pad_rows([self._row(reading) for reading in readings], self.critic.pad_token_id)
        wanted = torch.zeros(batch["completion_ids"].shape)
        old, mask = torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
        for row, reading in enumerate(readings):
            for place, target, value in zip(self._places(reading), targets[row], values[row], strict=True):
                wanted[row, place], old[row, place], mask[row, place] = target, value, True
        return self.critic.fit(batch, wanted, mask, old)

    def state(self) -> dict[str, Any]:
        """As `Critic.state`."""
        return self.critic.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """As `Critic.load_state`."""
        self.critic.load_state(state)

    def save(self, folder: str | Path, name: str) -> None:
        """As `Critic.save`."""
        self.critic.save(folder, name)

    def load(self, folder: str | Path, name: str) -> None:
        """As `Critic.load`."""
        self.critic.load(folder, name)

    def _row(self, reading: CriticInput) -> Row:
        """The reading as a row whose completion begins at its first place: values stand before its tokens."""
        ids, first = self._cut(reading)
        # Behind the last token a value stands before a token that nobody reads.
        completion = (*ids[first:], self.critic.pad_token_id)
        none = (0.0,) * len(completion)
        return Row(
            prompt_ids=ids[:first],
            completion_ids=completion,
            loss_mask=(1,) * len(completion),
            advantages=none,
            logprobs=None,
        )

    def _places(self, reading: CriticInput) -> list[int]:
        gone = len(reading.ids) - len(self._cut(reading)[0])
        first = self._cut(reading)[1]
        return [max(at - gone, 1) - first for at in reading.at]

    def _cut(self, reading: CriticInput) -> tuple[tuple[int, ...], int]:
        """What is read, and how much of it before the first place."""
        ids = reading.ids if self.max_tokens is None else reading.ids[-self.max_tokens :]
        return ids, max(reading.at[0] - (len(reading.ids) - len(ids)), 1)
