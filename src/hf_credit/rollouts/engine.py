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
from hf_credit.rollouts.conversations import Conversation
from hf_credit.rollouts.episode import Context, Decision, Ending, Episode
from hf_credit.rollouts.failures import FailureLog, in_one_line, unknown_where_diverged
from hf_credit.rollouts.interaction import Interaction, Request
from hf_credit.rollouts.pulse import PULSE
from hf_credit.rollouts.running import RolloutRequest, RunningEpisode
from hf_credit.rollouts.samplers import (
    Generation,
    Player,
    Samplers,
    honours_seeds,
    refuse_missing,
    sample,
    submits,
)
from hf_credit.rollouts.shared_states import SharedStateError, SharedStates, require_value
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
        generate: Samplers,
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

    def sampled_by(self, generate: Samplers) -> Engine[S]:
        """Returns the engine with other samplers."""
        other = copy.copy(self)
        other.generate = generate
        return other

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
        all_running = [self._unbegun(start, place) for place, start in enumerate(starts)]
        waiting, ready = deque(all_running), list[RunningEpisode[S]]()
        live = opened = 0
        arrivals = Arrivals(self.lock)
        try:
            while waiting or live:
                self._start(itertools.islice(waiting, self._most_live - live))
                while waiting and live < self._most_live:
                    running = waiting.popleft()
                    self._begin(running, states)
                    if running.splits:
                        waiting.extendleft(reversed(self._split(running, states)))
                    elif running.episode is None:
                        live += 1
                        ready.append(running)
                    else:
                        PULSE.played(1, 0)
                PULSE.played(0, live + len(waiting) - opened)
                opened = live + len(waiting)
                self._make_requests(ready, arrivals)
                # Only those that can continue are visited, so an arrival costs the same for any number of others.
                moved = [running for running in ready if not running.coming]
                # If some have just ended, others start before the engine waits.
                moved += arrivals.take(wait=live > 0 and not moved)
                for running in moved:
                    if running.refused is not None:
                        with _ErrorsEnd(self.failures, running):
                            raise running.refused
                self._act([running for running in moved if running.episode is None and not running.step], arrivals)
                for running in moved:
                    if running.result:
                        self._advance(running, running.result.pop())
                ready = [
                    running
                    for running in moved
                    if running.episode is None and not running.splits and not running.coming
                ]
                # Those that fork next come first in the queue, so that their alternatives run in parallel.
                waiting.extendleft(reversed([running for running in moved if running.splits]))
                ended = sum(running.episode is not None for running in moved)
                live -= ended + sum(running.splits for running in moved)
                PULSE.played(ended, -ended)
                opened -= ended
        finally:
            PULSE.played(0, -opened)
            arrivals.cancel()
        episodes = [episode for running in all_running for episode in running.leaves()]
        return unknown_where_diverged(episodes, [running.start for running in all_running])

    @property
    def _most_live(self) -> int:
        limit = self._batched.most_live
        return self.max_concurrent if limit is None else min(limit, self.max_concurrent)

    def _unbegun(self, start: RolloutRequest[S], place: int) -> RunningEpisode[S]:
        if any(width < 1 for width in start.fanout):
            raise ValueError(f"a fanout must be at least 1 at every step, got {start.fanout}; raise it.")
        if start.state is not None or max(start.fanout, default=1) > 1:
            capabilities.require_replayable(self.interaction, "a request that continues from a state")
        return RunningEpisode(
            start=start,
            place=place,
            contexts=dict(start.contexts),
            conversations=dict(start.conversations),
            forced=dict(start.forced),
            fanout=tuple(start.fanout),
        )

    def _start(self, all_running: Iterable[RunningEpisode[S]]) -> None:
        """Starts running episodes from tasks, in parallel if the Interaction supports it."""
        fresh = [running for running in all_running if running.state is None and running.start.state is None]
        tasks = [running.start.task for running in fresh]
        seeds = [
            task.get("seed", 0) if one.start.seed is None else one.start.seed
            for one, task in zip(fresh, tasks, strict=True)
        ]
        if fresh:
            with released(self.lock if self._batched.side_by_side > 1 else None):
                states = self._batched.start_many(tasks, seeds)
            for running, state in zip(fresh, states, strict=True):
                running.state = state

    def _begin(self, running: RunningEpisode[S], states: SharedStates) -> None:
        if running.begun:
            return
        running.begun = True
        start = running.start
        with _ErrorsEnd(self.failures, running):
            if start.state is None:
                self._start([running])  # unless it has been started in parallel
                if isinstance(running.state, Exception):
                    raise running.state
            elif start.seed is None:
                running.state = start.state
            else:
                running.state = self.interaction.reseed(start.state, start.seed)
            self._set_requests(running)
            if start.state is not None:
                states.enter(start.state, start.seed, running.requests)
                running.shared = states

    def _split(self, running: RunningEpisode[S], states: SharedStates) -> list[RunningEpisode[S]]:
        """The alternatives of the next step, each reseeded.

        With common random numbers the alternatives of the first fork keep the seed, so that only replies differ.
        """
        require_value(running.state)
        branches = running.split()
        for index, branch in enumerate(branches):
            branch.shared = states
            if index and (running.branch or running.start.stream is None):
                with _ErrorsEnd(self.failures, branch):
                    seed = derive(0, "again", running.again, index) if running.again else index
                    branch.state = self.interaction.reseed(branch.state, seed)
        return branches

    def _set_requests(self, running: RunningEpisode[S]) -> None:
        """Sets the next requests; without any, the running episode ends."""
        running.requests = self.interaction.pending(running.state)
        if not running.requests:
            self._end(running, self.interaction.ending(running.state))
        elif running.steps == running.start.most_steps:
            self._end(running, Ending.TRUNCATED, scored=False)

    def _end(self, running: RunningEpisode[S], ending: Ending, scored: bool = True) -> None:
        scored = scored and running.start.scored
        running.scored = self._costs.scores(running.state) if scored else 0
        running.end(
            ending,
            running.decisions,
            outcome=_finite("outcome", self.interaction.outcome(running.state)) if scored else math.nan,
            metrics={name: float(value) for name, value in self.interaction.metrics(running.state).items()},
            next_context=self._next_context(running) if ending == Ending.CUT else None,
            final_state=running.state,
        )

    def _next_context(self, running: RunningEpisode[S]) -> Context | None:
        """The next context of a running episode that was cut; of several simultaneous requests, that of the first."""
        for request in capabilities.Interruptible(self.interaction).bootstrap_requests(running.state):
            return self.chat.context(request.messages, running.conversations.get(request.event), request.tools)
        return None

    def _make_requests(self, all_running: Sequence[RunningEpisode[S]], arrivals: Arrivals) -> None:
        """Makes the next requests; episodes with a context that is too long end, or their task goes on."""
        to_sample: list[tuple[RunningEpisode[S], int, Request]] = []
        while all_running:
            requests = [(running, request) for running in all_running for request in running.requests]
            contexts = self._contexts(requests)
            long: dict[int, dict[str, int]] = {}  # by running episode
            for (running, request), context in zip(requests, contexts, strict=True):
                if len(context) > self.max_context_tokens:
                    long.setdefault(id(running), {})[request.event] = len(context)
            for (running, request), context in zip(requests, contexts, strict=True):
                if running.episode is None and id(running) not in long:
                    running.request_contexts.append(context)
                    running.replies.append(running.forced.pop(request.event, None))
                    if running.replies[-1] is None:
                        to_sample.append((running, len(running.replies) - 1, request))
            all_running = [running for running in all_running if running.episode is None and id(running) in long]
            for running in all_running:
                with _ErrorsEnd(self.failures, running):
                    self._refuse(running, long[id(running)])
            all_running = [running for running in all_running if running.episode is None]
        if to_sample:
            self._sample(to_sample, arrivals)

    def _refuse(self, running: RunningEpisode[S], tokens: Mapping[str, int]) -> None:
        """Tells a task that contexts of these numbers of tokens are too long; by default, its episode ends."""
        with released(self.lock if self._batched.side_by_side > 1 else None):
            after = self._read.too_long(running.state, tokens, int(self.max_context_tokens))
        if after is None:
            self._end(running, Ending.TRUNCATED)
            return
        if running.shared is not None:
            running.shared.leave(running.state, running.requests)
            running.shared = None
        running.state = after
        if running.decisions and not self.interaction.pending(after):  # rewards since the last replies are of these
            reward, last = _finite("reward", self.interaction.reward(after)), running.decisions[running.turn :]
            running.decisions[running.turn :] = [replace(one, reward=one.reward + reward) for one in last]
        self._set_requests(running)

    def _sample(self, requests: Sequence[tuple[RunningEpisode[S], int, Request]], arrivals: Arrivals) -> None:
        """Samples replies: those of a batch are set at once, those of single requests when they arrive."""
        if not submits(self.generate):
            requests = self._let_players_reply(requests)
        if not requests:
            return
        contexts = [running.request_contexts[index] for running, index, _ in requests]
        seeds = [running.draw_seed(request.event) for running, _, request in requests]
        takers = [partial(running.take, index, request.max_tokens) for running, index, request in requests]
        if submits(self.generate):
            for (running, _, request), context, seed, take in zip(requests, contexts, seeds, takers, strict=True):
                running.coming += 1
                arrivals.expect(self.generate.submit(request.role, context, seed), running, take)
            return
        replies = sample(self.generate, [request.role for _, _, request in requests], contexts, seeds)
        for take, reply in zip(takers, replies, strict=True):
            take(reply)

    def _let_players_reply(
        self, requests: Sequence[tuple[RunningEpisode[S], int, Request]]
    ) -> Sequence[tuple[RunningEpisode[S], int, Request]]:
        """Sets the replies of players, and returns the requests to samplers of tokens."""
        of_roles: Any = self.generate if isinstance(self.generate, Mapping) else {}
        players: list[Any] = [of_roles.get(request.role, self.generate) for _, _, request in requests]
        for player in dict.fromkeys(one for one in players if isinstance(one, Player)):
            asked = [one for one, its in zip(requests, players, strict=True) if its is player]
            replies = player.replies([(running.state, one, running.draw_seed(one.event)) for running, _, one in asked])
            for (running, index, request), reply in zip(asked, replies, strict=True):
                with _ErrorsEnd(self.failures, running):
                    if isinstance(reply, Exception):
                        raise reply
                    ids = self.chat.reply_ids(reply, running.request_contexts[index], request.tools)
                    PULSE.replied([len(ids)])
                    running.take(index, request.max_tokens, Generation(ids=ids))
        return [one for one, its in zip(requests, players, strict=True) if not isinstance(its, Player)]

    def _act(self, all_running: Sequence[RunningEpisode[S]], arrivals: Arrivals) -> None:
        """Passes replies to the Interaction, and records the results, at once or when they arrive."""
        if not all_running:
            return
        generations = [reply for running in all_running for reply in running.replies if reply is not None]
        contexts = [context for running in all_running for context in running.request_contexts]
        texts = iter(self.chat.texts([generation.ids for generation in generations], contexts))
        for running in all_running:
            for request, context, generation in zip(
                running.requests, running.request_contexts, running.replies, strict=True
            ):
                assert generation is not None
                ids, text = tuple(generation.ids), next(texts)
                running.conversations[request.event] = Conversation.after(request, text, context + ids)
                running.step.append(
                    Decision(
                        role=request.role,
                        event=request.event,
                        state=running.state,
                        context_ids=context,
                        action_ids=ids,
                        logprobs=None if generation.logprobs is None else tuple(generation.logprobs),
                        action_text=text,
                        step=running.start.step + running.steps,
                        trained=request.role not in self._trained_roles.untrained,
                        observed=request.role in self._trained_roles.untrained,
                    )
                )
        states = [running.state for running in all_running]
        replies = [self._replies(running) for running in all_running]
        if submits(self.generate) and self._batched.side_by_side > 1:
            for running, state, own in zip(all_running, states, replies, strict=True):
                running.coming += 1
                arrivals.expect(in_thread(self._batched.advance_many, [state], [own]), running, running.result.extend)
            return
        for running, result in zip(all_running, self._batched.advance_many(states, replies), strict=True):
            running.result.append(result)

    def _replies(self, running: RunningEpisode[S]) -> list[str]:
        """The replies of its step, as arguments of `advance`."""
        if not self._read.reads_tokens:
            return [decision.action_text for decision in running.step]
        return [
            self.chat.reply(one.action_ids, one.context_ids, asked.tools, one.logprobs if asked.logprobs else None)
            for asked, one in zip(running.requests, running.step, strict=True)
        ]

    def _contexts(self, requests: Sequence[tuple[RunningEpisode[S], Request]]) -> list[Context]:
        """The context of each request; messages that the template rejects end their running episode in an error."""
        contexts = [running.contexts.pop(request.event, None) for running, request in requests]
        missing = [index for index, context in enumerate(contexts) if context is None]
        conversations = [
            (request, running.conversations.get(request.event)) for running, request in (requests[i] for i in missing)
        ]
        for index, context in zip(missing, self.chat.contexts(conversations), strict=True):
            if isinstance(context, Exception):
                with _ErrorsEnd(self.failures, requests[index][0]):
                    raise context
            else:
                contexts[index] = context
        return [context or () for context in contexts]

    def _advance(self, running: RunningEpisode[S], result: S | Exception) -> None:
        """Continues in the state after a step, or ends with the exception that the step raised."""
        step = running.step
        with _ErrorsEnd(self.failures, running):
            if running.shared is not None:
                running.shared.leave(running.state, running.requests)
                running.shared = None
            if isinstance(result, Exception):
                raise result
            reward, trained = _finite("reward", self.interaction.reward(result)), self._trained_roles.trained(result)
            if not all(one.observed for one in step):
                running.turn = len(running.decisions)
            running.decisions += [replace(one, reward=reward) for one in step] if reward else step
            if not trained:  # which may depend on untrained roles' replies to the turn
                running.decisions[running.turn :] = [
                    replace(one, trained=False) for one in running.decisions[running.turn :]
                ]
            running.state = result
            running.steps += 1
            running.fanout = running.fanout[1:]
            self._count_siblings(running, step)
            running.request_contexts, running.replies, running.step = [], [], []
            self._set_requests(running)

    def _count_siblings(self, running: RunningEpisode[S], step: Sequence[Decision]) -> None:
        """With common random numbers, reseeds an alternative with the same replies as an earlier one."""
        siblings, running.siblings = running.siblings, None
        if siblings is None or running.start.stream is None:
            return
        replies = tuple(decision.action_ids for decision in step)
        running.again = siblings[replies]
        siblings[replies] += 1
        if running.again:
            running.state = self.interaction.reseed(running.state, derive(0, "again", running.again))


def _finite(what: str, value: Any) -> float:
    """The value as a finite number."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"the {what} of an episode must be finite, got {number}; fix the code of the task.")
    return number


class _ErrorsEnd:
    """A context in which an exception ends only the running episode; the decisions of the failed step are kept.

    It is a class, since it is entered for every decision: a generator would take a tenth of the time of a step in a
    simple environment.
    """

    def __init__(self, failures: FailureLog, running: RunningEpisode[Any]) -> None:
        self.failures = failures
        self.running = running

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception) or isinstance(error, SharedStateError):
            return False
        running = self.running
        self.failures.add(error)
        found = {"error": in_one_line(error), "exception": error}
        running.end(Ending.ERROR, [*running.decisions, *running.step], outcome=math.nan, **found)
        return True
