"""Plays many episodes in parallel."""

from __future__ import annotations

import copy
import itertools
import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from hf_credit.environments.randomness import derive
from hf_credit.rollouts import capabilities
from hf_credit.rollouts.arrivals import Arrivals, in_thread, released
from hf_credit.rollouts.chat import Chat
from hf_credit.rollouts.episode import Context, Decision, Ending, Episode
from hf_credit.rollouts.failures import FailureLog, in_one_line, unknown_where_diverged
from hf_credit.rollouts.interaction import Interaction, Request
from hf_credit.rollouts.pulse import PULSE
from hf_credit.rollouts.samplers import (
    GenerateFn,
    SubmittingSampler,
    honours_seeds,
    refuse_missing,
    sample,
    submits,
)
from hf_credit.rollouts.shared_states import SharedStateError, SharedStates, require_value
from hf_credit.rollouts.threads import Thread
from hf_credit.rollouts.walk import RolloutRequest, Walk
from hf_credit.validators import whole_number

S = TypeVar("S")


class Engine(Generic[S]):
    """Plays many episodes of an Interaction in parallel.

    A sampler of batches is called in rounds, with the contexts of all running episodes. A sampler of single requests
    (`SubmittingSampler`) is called as soon as an episode needs a reply, and the episode continues when it arrives. As
    soon as an episode ends, another one starts. An exception of the task's own code ends its episode in an error, and
    the first failure of each kind is logged; an exception of `generate` is raised.

    Args:
        interaction: the Interaction to play.
        chat: renders messages to tokens.
        generate: the sampler, one for all roles or one for each; with a method `seeded(contexts, seeds)` it honours
            seeds.
        max_concurrent: maximum number of running episodes, which bounds the batch of a generation call.
        max_context_tokens: a longer context ends its episode as truncated; unbounded if `None`.
        lock: for parallel runs in threads that share an Interaction, a chat or an oracle: a run holds the lock, except
            while it waits for replies or for parallel steps (`Batched.side_by_side`). So the code of a task runs in
            one thread at a time, and all runs wait for slow steps that are not parallel. Only for a sampler of single
            requests.

    Raises:
        ValueError: a limit is not a whole number of at least 1, or one of the Interaction's `roles` has no sampler.
    """

    def __init__(
        self,
        interaction: Interaction[S],
        chat: Chat,
        generate: GenerateFn | Mapping[str, GenerateFn] | SubmittingSampler,
        *,
        max_concurrent: int = 256,
        max_context_tokens: int | None = None,
        lock: threading.Lock | None = None,
    ) -> None:
        for name, limit in (("max_concurrent", max_concurrent), ("max_context_tokens", max_context_tokens)):
            if limit is not None:
                whole_number(name, limit, 1)
        self.chat = chat
        self.generate = generate
        self.lock = lock
        self._set_interaction(interaction)
        self.max_concurrent = max_concurrent
        self.failures = FailureLog()
        self.max_context_tokens = math.inf if max_context_tokens is None else max_context_tokens

    @property
    def honours_seeds(self) -> bool:
        """Whether episodes of one stream share random numbers."""
        return honours_seeds(self.generate)

    def of(self, interaction: Interaction[Any]) -> Engine[Any]:
        """Returns the engine for another Interaction, with the same samplers.

        Raises:
            ValueError: one of the Interaction's `roles` has no sampler.
        """
        other = copy.copy(self)
        other._set_interaction(interaction)
        return other

    def _set_interaction(self, interaction: Interaction[Any]) -> None:
        refuse_missing(self.generate, interaction.roles)
        self.interaction = interaction
        self._read = capabilities.ReadsTokens(interaction)
        self._batched = capabilities.Batched(interaction)
        self._trained_roles, self._costs = capabilities.TrainedRoles(interaction), capabilities.Costs(interaction)

    def rendered(self, template_kwargs: Mapping[str, Any]) -> Engine[S]:
        """Returns the engine with other settings of the chat template, which are added to or replace its own."""
        other = copy.copy(self)
        other.chat = self.chat.with_kwargs(template_kwargs)
        return other

    def run(self, starts: Iterable[RolloutRequest[S]]) -> list[Episode]:
        """Returns the episodes of all requests, in order: one for each request, or one for each leaf of its tree.

        Raises:
            ValueError: a `fanout` contains a number below 1, or a request needs replays that the Interaction does not
                support.
            SharedStateError: alternatives continue from a state that is not a value, or that one of them changed.
        """
        states = SharedStates(self.interaction)
        self._read.count_with(self.chat, None if math.isinf(self.max_context_tokens) else int(self.max_context_tokens))
        walks = [self._walk(start, place) for place, start in enumerate(starts)]
        waiting, ready = deque(walks), list[Walk[S]]()
        live = opened = 0
        arrivals = Arrivals(self.lock)
        try:
            while waiting or live:
                self._start(itertools.islice(waiting, self._most_live - live))
                while waiting and live < self._most_live:
                    walk = waiting.popleft()
                    self._begin(walk, states)
                    if walk.splits:
                        waiting.extendleft(reversed(self._split(walk, states)))
                    elif walk.episode is None:
                        live += 1
                        ready.append(walk)
                    else:
                        PULSE.played(1, 0)
                PULSE.played(0, live + len(waiting) - opened)
                opened = live + len(waiting)
                self._make_requests(ready, arrivals)
                # Only walks that can continue are visited, so an arrival costs the same for any number of others.
                moved = [walk for walk in ready if not walk.coming]
                # If walks have just ended, others start before the engine waits.
                moved += arrivals.take(wait=live > 0 and not moved)
                for walk in moved:
                    if walk.refused is not None:
                        with _ErrorsEnd(self.failures, walk):
                            raise walk.refused
                self._act([walk for walk in moved if walk.episode is None and not walk.step], arrivals)
                for walk in moved:
                    if walk.result:
                        self._advance(walk, walk.step, walk.result.pop())
                ready = [walk for walk in moved if walk.episode is None and not walk.splits and not walk.coming]
                # Walks that fork next come first in the queue, so that their alternatives run in parallel.
                waiting.extendleft(reversed([walk for walk in moved if walk.splits]))
                ended = sum(walk.episode is not None for walk in moved)
                live -= ended + sum(walk.splits for walk in moved)
                PULSE.played(ended, -ended)
                opened -= ended
        finally:
            PULSE.played(0, -opened)
            arrivals.cancel()
        episodes = [episode for walk in walks for episode in walk.leaves()]
        return unknown_where_diverged(episodes, [walk.start for walk in walks])

    @property
    def _most_live(self) -> int:
        limit = self._batched.most_live
        return self.max_concurrent if limit is None else min(limit, self.max_concurrent)

    def _walk(self, start: RolloutRequest[S], place: int) -> Walk[S]:
        if any(width < 1 for width in start.fanout):
            raise ValueError(f"a fanout must be at least 1 at every step, got {start.fanout}; raise it.")
        if start.state is not None or max(start.fanout, default=1) > 1:
            capabilities.require_replayable(self.interaction, "a request that continues from a state")
        return Walk(
            start=start,
            place=place,
            contexts=dict(start.contexts),
            threads=dict(start.threads),
            forced=dict(start.forced),
            fanout=tuple(start.fanout),
        )

    def _start(self, walks: Iterable[Walk[S]]) -> None:
        """Starts walks from tasks, in parallel if the Interaction supports it."""
        fresh = [walk for walk in walks if walk.state is None and walk.start.state is None]
        tasks = [walk.start.task for walk in fresh]
        seeds = [
            task.get("seed", 0) if one.start.seed is None else one.start.seed
            for one, task in zip(fresh, tasks, strict=True)
        ]
        if fresh:
            with released(self.lock if self._batched.side_by_side > 1 else None):
                states = self._batched.start_many(tasks, seeds)
            for walk, state in zip(fresh, states, strict=True):
                walk.state = state

    def _begin(self, walk: Walk[S], states: SharedStates) -> None:
        if walk.begun:
            return
        walk.begun = True
        start = walk.start
        with _ErrorsEnd(self.failures, walk):
            if start.state is None:
                self._start([walk])  # unless it has been started in parallel
                if isinstance(walk.state, Exception):
                    raise walk.state
            elif start.seed is None:
                walk.state = start.state
            else:
                walk.state = self.interaction.reseed(start.state, start.seed)
            self._set_requests(walk)
            if start.state is not None:
                states.enter(start.state, start.seed, walk.requests)
                walk.shared = states

    def _split(self, walk: Walk[S], states: SharedStates) -> list[Walk[S]]:
        """The alternatives of the next step, each reseeded.

        With common random numbers the alternatives of the first fork keep the seed, so that only replies differ.
        """
        require_value(walk.state)
        branches = walk.split()
        for index, branch in enumerate(branches):
            branch.shared = states
            if index and (walk.branch or walk.start.stream is None):
                with _ErrorsEnd(self.failures, branch):
                    seed = derive(0, "again", walk.again, index) if walk.again else index
                    branch.state = self.interaction.reseed(branch.state, seed)
        return branches

    def _set_requests(self, walk: Walk[S]) -> None:
        """Sets the next requests; without any, the walk ends."""
        walk.requests = self.interaction.pending(walk.state)
        if not walk.requests:
            self._end(walk, self.interaction.ending(walk.state))
        elif walk.steps == walk.start.most_steps:
            self._end(walk, Ending.TRUNCATED, scored=False)

    def _end(self, walk: Walk[S], ending: Ending, scored: bool = True) -> None:
        scored = scored and walk.start.scored
        walk.scored = self._costs.scores(walk.state) if scored else 0
        walk.end(
            ending,
            walk.decisions,
            outcome=_finite("outcome", self.interaction.outcome(walk.state)) if scored else math.nan,
            metrics=dict(self.interaction.metrics(walk.state)),
            next_context=self._next_context(walk) if ending == Ending.CUT else None,
            final_state=walk.state,
        )

    def _next_context(self, walk: Walk[S]) -> Context | None:
        """The next context of a walk that was cut; of several simultaneous requests, that of the first."""
        for request in capabilities.Interruptible(self.interaction).bootstrap_requests(walk.state):
            (context,) = self.chat.contexts([(request, walk.threads.get(request.event))])
            if isinstance(context, Exception):
                raise context
            return context
        return None

    def _make_requests(self, walks: Sequence[Walk[S]], arrivals: Arrivals) -> None:
        """Makes the next requests of walks; those with a context that is too long end, or their task goes on."""
        to_sample: list[tuple[Walk[S], int, Request]] = []
        while walks:
            requests = [(walk, request) for walk in walks for request in walk.requests]
            contexts = self._contexts(requests)
            long: dict[int, dict[str, int]] = {}  # by walk
            for (walk, request), context in zip(requests, contexts, strict=True):
                if len(context) > self.max_context_tokens:
                    long.setdefault(id(walk), {})[request.event] = len(context)
            for (walk, request), context in zip(requests, contexts, strict=True):
                if walk.episode is None and id(walk) not in long:
                    walk.request_contexts.append(context)
                    walk.replies.append(walk.forced.pop(request.event, None))
                    if walk.replies[-1] is None:
                        to_sample.append((walk, len(walk.replies) - 1, request))
            walks = [walk for walk in walks if walk.episode is None and id(walk) in long]
            for walk in walks:
                with _ErrorsEnd(self.failures, walk):
                    self._refuse(walk, long[id(walk)])
            walks = [walk for walk in walks if walk.episode is None]
        if to_sample:
            self._sample(to_sample, arrivals)

    def _refuse(self, walk: Walk[S], tokens: Mapping[str, int]) -> None:
        """Tells a task that contexts of these numbers of tokens are too long; by default, its episode ends."""
        with released(self.lock if self._batched.side_by_side > 1 else None):
            after = self._read.too_long(walk.state, tokens, int(self.max_context_tokens))
        if after is None:
            self._end(walk, Ending.TRUNCATED)
            return
        if walk.shared is not None:
            walk.shared.leave(walk.state, walk.requests)
            walk.shared = None
        walk.state = after
        self._set_requests(walk)

    def _sample(self, requests: Sequence[tuple[Walk[S], int, Request]], arrivals: Arrivals) -> None:
        """Samples replies: those of a batch are set at once, those of single requests when they arrive."""
        contexts = [walk.request_contexts[index] for walk, index, _ in requests]
        seeds = [walk.draw_seed(request.event) for walk, _, request in requests]
        takers = [partial(walk.take, index, request.max_tokens) for walk, index, request in requests]
        if submits(self.generate):
            for (walk, _, request), context, seed, take in zip(requests, contexts, seeds, takers, strict=True):
                walk.coming += 1
                arrivals.expect(self.generate.submit(request.role, context, seed), walk, take)
            return
        replies = sample(self.generate, [request.role for _, _, request in requests], contexts, seeds)
        for take, reply in zip(takers, replies, strict=True):
            take(reply)

    def _act(self, walks: Sequence[Walk[S]], arrivals: Arrivals) -> None:
        """Passes replies to the Interaction, and records the results, at once or when they arrive."""
        if not walks:
            return
        generations = [reply for walk in walks for reply in walk.replies if reply is not None]
        contexts = [context for walk in walks for context in walk.request_contexts]
        texts = iter(self.chat.texts([generation.ids for generation in generations], contexts))
        for walk in walks:
            for request, context, generation in zip(walk.requests, walk.request_contexts, walk.replies, strict=True):
                assert generation is not None
                ids, text = tuple(generation.ids), next(texts)
                walk.threads[request.event] = Thread.after(request, text, context + ids)
                walk.step.append(
                    Decision(
                        role=request.role,
                        event=request.event,
                        state=walk.state,
                        context_ids=context,
                        action_ids=ids,
                        logprobs=None if generation.logprobs is None else tuple(generation.logprobs),
                        action_text=text,
                        step=walk.start.step + walk.steps,
                        trained=request.role not in self._trained_roles.untrained,
                        observed=request.role in self._trained_roles.untrained,
                    )
                )
        states, replies = [walk.state for walk in walks], [self._replies(walk, walk.step) for walk in walks]
        if submits(self.generate) and self._batched.side_by_side > 1:
            for walk, state, own in zip(walks, states, replies, strict=True):
                walk.coming += 1
                arrivals.expect(in_thread(self._batched.advance_many, [state], [own]), walk, walk.result.extend)
            return
        for walk, result in zip(walks, self._batched.advance_many(states, replies), strict=True):
            walk.result.append(result)

    def _replies(self, walk: Walk[S], step: Sequence[Decision]) -> list[str]:
        """The replies of a step, as arguments of `advance`."""
        if not self._read.reads_tokens:
            return [decision.action_text for decision in step]
        return [
            self.chat.reply(one.action_ids, one.context_ids, asked.tools, one.logprobs if asked.logprobs else None)
            for asked, one in zip(walk.requests, step, strict=True)
        ]

    def _contexts(self, requests: Sequence[tuple[Walk[S], Request]]) -> list[Context]:
        """The context of each request; messages that the template rejects end their walk in an error."""
        contexts = [walk.contexts.pop(request.event, None) for walk, request in requests]
        missing = [index for index, context in enumerate(contexts) if context is None]
        threads = [(request, walk.threads.get(request.event)) for walk, request in (requests[i] for i in missing)]
        for index, context in zip(missing, self.chat.contexts(threads), strict=True):
            if isinstance(context, Exception):
                with _ErrorsEnd(self.failures, requests[index][0]):
                    raise context
            else:
                contexts[index] = context
        return [context or () for context in contexts]

    def _advance(self, walk: Walk[S], step: list[Decision], result: S | Exception) -> None:
        """Continues in the state after a step, or ends with the exception that the step raised."""
        with _ErrorsEnd(self.failures, walk):
            if walk.shared is not None:
                walk.shared.leave(walk.state, walk.requests)
                walk.shared = None
            if isinstance(result, Exception):
                raise result
            reward, trained = _finite("reward", self.interaction.reward(result)), self._trained_roles.trained(result)
            if not all(one.observed for one in step):
                walk.turn = len(walk.decisions)
            walk.decisions += [replace(one, reward=reward) for one in step] if reward else step
            if not trained:  # which may depend on untrained roles' replies to the turn
                walk.decisions[walk.turn :] = [replace(one, trained=False) for one in walk.decisions[walk.turn :]]
            walk.state = result
            walk.steps += 1
            walk.fanout = walk.fanout[1:]
            self._count_siblings(walk, step)
            walk.request_contexts, walk.replies, walk.step = [], [], []
            self._set_requests(walk)

    def _count_siblings(self, walk: Walk[S], step: Sequence[Decision]) -> None:
        """With common random numbers, reseeds an alternative with the same replies as an earlier one."""
        siblings, walk.siblings = walk.siblings, None
        if siblings is None or walk.start.stream is None:
            return
        replies = tuple(decision.action_ids for decision in step)
        walk.again = siblings[replies]
        siblings[replies] += 1
        if walk.again:
            walk.state = self.interaction.reseed(walk.state, derive(0, "again", walk.again))


def _finite(what: str, value: Any) -> float:
    """The value as a finite number."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"the {what} of an episode must be finite, got {number}; fix the code of the task.")
    return number


class _ErrorsEnd:
    """A context in which an exception ends only the walk; the decisions of the failed step are kept.

    It is a class, since it is entered for every decision: a generator would take a tenth of the time of a step in a
    simple environment.
    """

    def __init__(self, failures: FailureLog, walk: Walk[Any]) -> None:
        self.failures = failures
        self.walk = walk

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception) or isinstance(error, SharedStateError):
            return False
        walk = self.walk
        self.failures.add(error)
        found = {"error": in_one_line(error), "exception": error}
        walk.end(Ending.ERROR, [*walk.decisions, *walk.step], outcome=math.nan, **found)
        return True
