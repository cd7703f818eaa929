"""Plays a task once without a policy, to find errors in its code early."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hf_credit.rollouts.capabilities import in_threads
from hf_credit.rollouts.chat import Chat
from hf_credit.rollouts.engine import Engine
from hf_credit.rollouts.episode import Ending, Episode
from hf_credit.rollouts.failures import FailureLog
from hf_credit.rollouts.interaction import Interaction, Request, Wrapper
from hf_credit.rollouts.running import RolloutRequest
from hf_credit.rollouts.samplers import Generation
from hf_credit.rollouts.templates import ChatTemplateError

_STEPS = 16  # enough for every role of a collaboration; a game may have thousands


class DryRunError(RuntimeError):
    """The code of a task failed on its first row; the exception is the cause."""


def dry_run(
    interaction: Interaction[Any], chat: Chat, start: RolloutRequest[Any], what: str = "the first task row"
) -> None:
    """Plays one task with the constant reply "?" to every request, with the engine of training.

    It renders chat templates, takes at most 16 steps, and computes the outcome and the metrics. So a scorer is called
    once, also a slow one, and must not raise an exception on a meaningless reply. No token is generated, and the
    random states of Python, NumPy and torch do not change.

    Args:
        chat: renders messages to tokens.
        start: the request of the task.
        what: describes the task in the error.

    Raises:
        DryRunError: the Interaction or its scorer raised an exception.
        ChatTemplateError: the tokenizer's chat template does not fit the task.
    """
    episode = _play(interaction, chat, replace(start, fanout=(), stream=None), _STEPS)
    if isinstance(episode.exception, ChatTemplateError):
        raise episode.exception.with_traceback(None) from None
    if episode.ending == Ending.ERROR:
        raise DryRunError(
            f"{what} must not raise an exception, whatever the replies, got {str(episode.error).rstrip('.')}; fix the "
            "code in the traceback."
        ) from episode.exception


def require_room(
    interaction: Interaction[Any], chat: Chat, starts: Iterable[RolloutRequest[Any]], max_context_tokens: float
) -> None:
    """Rejects tasks of which none of the first eight asks for a reply, and a limit of contexts that all exceed.

    Raises:
        ValueError: no episode would have a decision.
    """
    tried, ending = 0, Ending.TRUNCATED
    for tried, start in enumerate(itertools.islice(starts, 8), start=1):  # noqa: B007
        episode = _play(interaction, chat, replace(start, fanout=(), stream=None, scored=False), 1, max_context_tokens)
        if episode.ending == Ending.ERROR or episode.decisions:
            return
        ending = episode.ending if ending == Ending.TRUNCATED else ending
    if tried and ending != Ending.TRUNCATED:
        raise ValueError(
            f"a task must ask for a reply, got none in the first {tried} tasks of {interaction.name!r}; request one "
            "from the model, which a program finds at model.base_url."
        )
    if tried:
        raise ValueError(
            f"the context of a task must have at most {max_context_tokens:g} tokens, so that a reply still fits, got "
            f"more in each of the first {tried} tasks; lower max_completion_length (max_new_tokens) or raise "
            "max_context_tokens."
        )


def first_rows(dataset: Any, count: int = 1) -> Iterator[Mapping[str, Any]]:
    """Yields the first rows of a dataset, or of each value of a dictionary of datasets; none for `None`.

    Args:
        dataset: a dataset with `__getitem__` and `__len__`, or a stream, whose iteration restarts.
        count: maximum number of rows per dataset.
    """
    if isinstance(dataset, dict):
        for value in dataset.values():
            yield from first_rows(value, count)
    elif hasattr(dataset, "__len__") and not isinstance(dataset, torch.utils.data.IterableDataset):
        yield from (dataset[index] for index in range(min(count, len(dataset))))
    elif dataset is not None:
        yield from itertools.islice(dataset, count)


def _play(
    interaction: Interaction[Any], chat: Chat, start: RolloutRequest[Any], steps: int, limit: float | None = None
) -> Episode:
    ids = chat.reply_ids("?")
    reply = Generation(ids=ids, logprobs=[0.0] * len(ids))  # as certain, since programs may ask for them
    engine = Engine(_StepLimit(interaction, steps), chat, lambda contexts: [reply] * len(contexts))
    engine.failures = _Silent()
    if limit is not None:
        engine.max_context_tokens = limit
    with undisturbed():
        (episode,) = engine.run([start])
    return episode


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restores the random states of Python, NumPy and torch on exit."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


class _StepLimit(Wrapper[Any, Any]):
    """An Interaction that ends after some steps, counted over all its episodes."""

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
        return in_threads(1, self.advance, states, replies)


class _Silent(FailureLog):
    def add(self, error: Exception, what: str = "an episode") -> None:
        """Logs nothing: the caller raises the failure."""
