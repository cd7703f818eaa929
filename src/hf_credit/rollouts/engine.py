"""Many episodes at once."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from hf_credit.rollouts.chat import Chat, Thread
from hf_credit.rollouts.episode import Decision, Ending, Episode
from hf_credit.rollouts.interaction import Interaction, Request

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A reply in tokens.

    Attributes:
        ids: the tokens produced, an end-of-turn token included.
        logprobs: the log-probability of each in nats, or `None` where the sampler reports none.
    """

    ids: Sequence[int]
    logprobs: Sequence[float] | None = None


GenerateFn = Callable[[Sequence[Sequence[int]]], Sequence[Generation]]
"""Replies to contexts, in their order. The contexts differ from each other and are not grouped."""


@dataclass(frozen=True, kw_only=True)
class Start(Generic[S]):
    """Where an episode begins: a task and a seed, or a recorded state.

    Attributes:
        task: the task row, read only without `state`.
        seed: what `Interaction.start` gets, or what `state` is reseeded with. `None` takes the task's own `seed`, or 0
            if it has none, and leaves a recorded state as it is.
        state: a state to start from.
        contexts: with `state`, the recorded context of event types whose next reply is to a context already in tokens.
    """

    task: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    state: S | None = None
    contexts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(kw_only=True)
class _Walk(Generic[S]):
    """An episode in the making; `episode` is set once it is over."""

    start: Start[S]
    state: Any = None
    requests: tuple[Request, ...] = ()
    threads: dict[str, Thread] = field(default_factory=dict)
    contexts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    episode: Episode | None = None


class Engine(Generic[S]):
    """Walks many episodes of an Interaction side by side, one batch of generation a round.

    Each round collects every reply that any episode waits for and asks for all of them in one call. An episode that
    ends makes room for the next at once. What fails inside an episode ends that episode as an error; what fails in
    `generate` itself is the sampler's failure and is raised.

    Args:
        interaction: what is played.
        chat: renders messages to tokens.
        generate: the sampler.
        max_concurrent: the most episodes under way at once, which bounds the batch of a generation call.
        max_context_tokens: a context longer than this ends its episode as truncated; unbounded if `None`.

    Raises:
        ValueError: a limit is less than 1.
    """

    def __init__(
        self,
        interaction: Interaction[S],
        chat: Chat,
        generate: GenerateFn,
        *,
        max_concurrent: int = 256,
        max_context_tokens: int | None = None,
    ) -> None:
        for name, limit in (("max_concurrent", max_concurrent), ("max_context_tokens", max_context_tokens)):
            if limit is not None and limit < 1:
                raise ValueError(f"{name} must be at least 1, got {limit}; raise it.")
        self.interaction = interaction
        self.chat = chat
        self.generate = generate
        self.max_concurrent = max_concurrent
        self.max_context_tokens = math.inf if max_context_tokens is None else max_context_tokens

    def run(self, starts: Iterable[Start[S]]) -> list[Episode]:
        """One episode for each start, in the order of the starts."""
        walks: list[_Walk[S]] = [_Walk(start=start, contexts=dict(start.contexts)) for start in starts]
        waiting, live = deque(walks), list[_Walk[S]]()
        while waiting or live:
            while waiting and len(live) < self.max_concurrent:
                walk = waiting.popleft()
                self._begin(walk)
                if walk.episode is None:
                    live.append(walk)
            self._round(live)
            live = [walk for walk in live if walk.episode is None]
        return [walk.episode for walk in walks if walk.episode is not None]

    def _begin(self, walk: _Walk[S]) -> None:
        start = walk.start
        with _errors_end(walk):
            if start.state is None:
                seed = start.task.get("seed", 0) if start.seed is None else start.seed
                walk.state = self.interaction.start(start.task, seed)
            elif start.seed is None:
                walk.state = start.state
            else:
                walk.state = self.interaction.reseed(start.state, start.seed)
            self._look(walk)

    def _look(self, walk: _Walk[S]) -> None:
        """Who acts next; nobody ends the walk."""
        walk.requests = self.interaction.pending(walk.state)
        if not walk.requests:
            self._end(walk, self.interaction.ending(walk.state))

    def _end(self, walk: _Walk[S], ending: Ending) -> None:
        walk.episode = Episode(
            decisions=tuple(walk.decisions),
            outcome=float(self.interaction.outcome(walk.state)),
            ending=ending,
            metrics=dict(self.interaction.metrics(walk.state)),
        )

    def _round(self, live: list[_Walk[S]]) -> None:
        """Every live walk makes one step."""
        asked = [(walk, request) for walk in live for request in walk.requests]
        contexts = [self._context(walk, request) for walk, request in asked]
        for (walk, _), context in zip(asked, contexts, strict=True):
            if walk.episode is None and len(context) > self.max_context_tokens:
                with _errors_end(walk):
                    self._end(walk, Ending.TRUNCATED)
        going = [
            (walk, request, context)
            for (walk, request), context in zip(asked, contexts, strict=True)
            if walk.episode is None
        ]
        if not going:
            return
        generations = self.generate([context for _, _, context in going])
        texts = self.chat.texts([generation.ids for generation in generations])

        steps: dict[int, list[Decision]] = {}
        for (walk, request, context), generation, text in zip(going, generations, texts, strict=True):
            ids = tuple(generation.ids)
            reply = {"role": "assistant", "content": text}
            walk.threads[request.event] = Thread(messages=(*request.messages, reply), ids=context + ids)
            steps.setdefault(id(walk), []).append(
                Decision(
                    role=request.role,
                    event=request.event,
                    state=walk.state,
                    context_ids=context,
                    action_ids=ids,
                    logprobs=None if generation.logprobs is None else tuple(generation.logprobs),
                    action_text=text,
                )
            )
        for walk in live:
            if walk.episode is None:
                self._advance(walk, steps[id(walk)])

    def _context(self, walk: _Walk[S], request: Request) -> tuple[int, ...]:
        """The tokens of a request; messages that the template refuses end the walk as an error."""
        if request.event in walk.contexts:
            return walk.contexts.pop(request.event)
        with _errors_end(walk):
            return self.chat.context(request.messages, walk.threads.get(request.event))
        return ()

    def _advance(self, walk: _Walk[S], step: list[Decision]) -> None:
        with _errors_end(walk, step):
            state = self.interaction.advance(walk.state, [decision.action_text for decision in step])
            reward = float(self.interaction.reward(state))
            walk.decisions.extend(replace(decision, reward=reward) for decision in step)
            walk.state = state
            step.clear()
            self._look(walk)


@contextmanager
def _errors_end(walk: _Walk[Any], unrecorded: Sequence[Decision] = ()) -> Iterator[None]:
    """What the task's own code raises ends the walk, not the run; decisions of the failed step are kept."""
    try:
        yield
    except Exception as error:
        message = f"{type(error).__name__}: {error}".replace("\n", " ")[:500]
        decisions = (*walk.decisions, *unrecorded)
        walk.episode = Episode(decisions=decisions, outcome=0.0, ending=Ending.ERROR, error=message)
