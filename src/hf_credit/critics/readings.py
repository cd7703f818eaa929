"""What critics read of an episode, and the values they give there."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hf_credit.critics.critic import Critic
from hf_credit.rollouts import Episode, Row
from hf_credit.rollouts.batches import pad_rows
from hf_credit.rollouts.runner import Reading


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


def context_readings(contexts: Sequence[tuple[int, ...]]) -> list[Reading]:
    """One value for each context, with all of it read."""
    return [Reading(ids=ids, at=(len(ids),)) for ids in contexts]


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

    def __call__(self, readings: Sequence[Reading]) -> list[tuple[float, ...]]:
        """The values at the places of each reading."""
        if not readings:
            return []
        rows = [self._row(reading) for reading in readings]
        values = self.critic.values(pad_rows(rows, self.critic.pad_token_id)).tolist()
        return [
            tuple(own[place] for place in self._places(reading)) for own, reading in zip(values, readings, strict=True)
        ]

    def fit(
        self, readings: Sequence[Reading], targets: Sequence[Sequence[float]], values: Sequence[Sequence[float]]
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

    def _row(self, reading: Reading) -> Row:
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

    def _places(self, reading: Reading) -> list[int]:
        gone = len(reading.ids) - len(self._cut(reading)[0])
        first = self._cut(reading)[1]
        return [max(at - gone, 1) - first for at in reading.at]

    def _cut(self, reading: Reading) -> tuple[tuple[int, ...], int]:
        """What is read, and how much of it before the first place."""
        ids = reading.ids if self.max_tokens is None else reading.ids[-self.max_tokens :]
        return ids, max(reading.at[0] - (len(reading.ids) - len(ids)), 1)
