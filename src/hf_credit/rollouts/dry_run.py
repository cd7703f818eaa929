"""Plays a task once without a policy, to find errors in its code before a policy is loaded."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hf_credit.rollouts.capabilities import one_after_another
from hf_credit.rollouts.chat import Chat
from hf_credit.rollouts.engine import Engine, RolloutRequest
from hf_credit.rollouts.episode import Ending, Episode
from hf_credit.rollouts.failures import FailureLog
from hf_credit.rollouts.interaction import Interaction, Request, Wrapper
from hf_credit.rollouts.samplers import Generation

_REPLY = "?"
_STEPS = 16  # enough for every role of a collaboration; a game may go on for thousands


class DryRunError(RuntimeError):
    """A task's own code failed on its first row; the failure is the cause."""


def dry_run(
    interaction: Interaction[Any], chat: Chat, start: RolloutRequest[Any], what: str = "the first task row"
) -> None:
    """Plays one task with the constant reply "?" to every request, through the same engine as training.

    It renders templates, takes at most 16 steps, and computes the outcome and the metrics, so a scorer is called once,
    on a meaningless reply, which must have a score without an exception. A scorer that is slow or calls a judge over a
    network is called as well, because training needs it too. No token is generated, and the random states of Python,
    NumPy and torch do not change.

    Args:
        interaction: the task to play.
        chat: renders messages to tokens.
        start: the task.
        what: name of the task in the error.

    Raises:
        DryRunError: the interaction, its scorer or the chat template raised an exception.
    """
    failed = _play(interaction, chat, replace(start, fanout=(), stream=None), _STEPS)
    if failed.ending == Ending.ERROR:
        raise DryRunError(
            f"{what} must play without an exception, whatever is replied, got {failed.error}; mend the code that the "
            "traceback names."
        ) from failed.exception


def require_room(
    interaction: Interaction[Any], chat: Chat, starts: Iterable[RolloutRequest[Any]], max_context_tokens: float
) -> None:
    """Rejects a limit that none of the first eight tasks fits, so that every episode would end at its start.

    Args:
        interaction, chat: as in `dry_run`.
        starts: the tasks; the second is checked only if the first does not fit, and so on.
        max_context_tokens: the limit of a context.

    Raises:
        ValueError: none fits.
    """
    tried = 0
    for tried, start in enumerate(itertools.islice(starts, 8), start=1):  # noqa: B007
        episode = _play(interaction, chat, replace(start, fanout=(), stream=None, scored=False), 1, max_context_tokens)
        if episode.ending != Ending.TRUNCATED or episode.decisions:
            return
    if tried:
        raise ValueError(
            f"the context of a task must fit the model beside a reply, got room for {max_context_tokens:g} tokens and "
            f"longer ones in the first {tried} tasks; lower max_completion_length (max_new_tokens) or raise "
            "max_context_tokens."
        )


def first_rows(dataset: Any, count: int = 1) -> Iterator[Mapping[str, Any]]:
    """The first rows of a dataset, or of each of several by name; empty for `None`.

    Args:
        dataset: with `__getitem__` and a length, or a stream, which is restarted for them.
        count: maximum number of each.
    """
    if isinstance(dataset, dict):
        for one in dataset.values():
            yield from first_rows(one, count)
    elif hasattr(dataset, "__len__") and not isinstance(dataset, torch.utils.data.IterableDataset):
        yield from (dataset[place] for place in range(min(count, len(dataset))))
    elif dataset is not None:
        yield from itertools.islice(dataset, count)


def _play(
    interaction: Interaction[Any], chat: Chat, start: RolloutRequest[Any], steps: int, limit: float | None = None
) -> Episode:
    encoded = chat.tokenizer(_REPLY, add_special_tokens=False)["input_ids"]
    reply = Generation(ids=[*encoded, chat.tokenizer.eos_token_id])

    def generate(contexts: Sequence[Sequence[int]]) -> Sequence[Generation]:
        return [reply] * len(contexts)

    engine = Engine(_Cut(interaction, steps), chat, generate)
    engine.failures = _Silent()
    if limit is not None:
        engine.max_context_tokens = limit
    with undisturbed():
        (episode,) = engine.run([start])
    return episode


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restores the random states of Python, NumPy and torch."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


class _Cut(Wrapper[Any, Any]):
    """An Interaction cut after some steps, which are made here."""

    def __init__(self, inner: Interaction[Any], steps: int) -> None:
        super().__init__(inner)
        self.left = steps

    def pending(self, state: Any) -> tuple[Request, ...]:
        requests = self.inner.pending(state)
        return requests if self.left else ()

    def advance(self, state: Any, replies: Sequence[str]) -> Any:
        self.left -= 1
        return self.inner.advance(state, replies)

    def advance_many(self, states: Sequence[Any], replies: Sequence[Sequence[str]]) -> list[Any]:
        return one_after_another(self, states, replies)


class _Silent(FailureLog):
    def add(self, error: Exception, what: str = "an episode") -> None:
        """Raises the failure."""
