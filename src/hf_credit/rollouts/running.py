"""An episode while it is played, and the request for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from hf_credit.environments.randomness import derive
from hf_credit.rollouts.conversations import Conversation
from hf_credit.rollouts.episode import Context, Decision, Ending, Episode
from hf_credit.rollouts.interaction import Request
from hf_credit.rollouts.samplers import BadReplyError, Generation
from hf_credit.rollouts.shared_states import SharedStates

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class RolloutRequest(Generic[S]):
    """A request for an episode from a task and a seed, or from a recorded state, or for a tree of episodes.

    Attributes:
        task: the task row; not used with `state`.
        seed: the argument of `Interaction.start`, or the new seed of `state`. If `None`, the task's `seed`, or 0
            without one; a recorded state is then not reseeded.
        state: the state to start from, such as from `hf_credit.rollouts.replay_from`.
        contexts: with `state`, the recorded tokens of next contexts, by event type.
        conversations: with `state`, the conversations so far, by event type.
        step: with `state`, the number of steps before it, from which the steps of decisions are counted.
        earned: with `state`, the sum of the rewards of these steps.
        forced: with `state`, fixed replies in the first step, by event type.
        fanout: number of alternatives at the first step, the second step and so on. Before a step with several, the
            episode forks; there is one episode for each leaf.
        scored: whether the outcome is computed at the end.
        most_steps: an episode that has not ended after this many steps ends as truncated, without an outcome.
        stream: the name of the random numbers of replies, if the sampler honours seeds: episodes of one stream share
            them, except for the alternatives of the first step with several (paper C3, Appendix L).
        comparison: whether its episodes serve only for comparison, which the ledger counts separately.
    """

    task: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    state: S | None = None
    contexts: Mapping[str, Context] = field(default_factory=dict)
    conversations: Mapping[str, Conversation] = field(default_factory=dict)
    step: int = 0
    earned: float = 0.0
    forced: Mapping[str, Generation] = field(default_factory=dict)
    fanout: Sequence[int] = ()
    scored: bool = True
    most_steps: int | None = None
    stream: str | None = None
    comparison: bool = False


@dataclass(kw_only=True)
class RunningEpisode(Generic[S]):
    """An unfinished episode; `episode` is set when it is over, `branches` when it has forked.

    In each step it makes requests (`request_contexts`), acts when it has all `replies`, and continues from `result`.
    """

    start: RolloutRequest[S]
    place: int  # the index of `start`
    begun: bool = False
    state: Any = None
    requests: tuple[Request, ...] = ()
    conversations: dict[str, Conversation] = field(default_factory=dict)
    contexts: dict[str, Context] = field(default_factory=dict)
    forced: dict[str, Generation] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    turn: int = 0  # the index of the first decision of the last turn
    steps: int = 0
    fanout: tuple[int, ...] = ()
    branch: tuple[int, ...] = ()  # as `Episode.branch`
    prefix_length: int = 0
    scored: int = 0  # as `Episode.scored`
    shared: SharedStates | None = None  # if other running episodes continue from its state
    episode: Episode | None = None
    branches: list[RunningEpisode[S]] = field(default_factory=list)
    request_contexts: list[Context] = field(default_factory=list)  # the context of each request
    replies: list[Generation | None] = field(default_factory=list)
    coming: int = 0  # number of replies or steps that it waits for
    refused: BadReplyError | None = None  # with which it ends
    step: list[Decision] = field(default_factory=list)
    result: list[S | Exception] = field(default_factory=list)  # the next state or an exception, once it is known
    siblings: Counter[tuple[tuple[int, ...], ...]] | None = None  # replies so far at the fork before this step
    again: int = 0  # number of earlier siblings with the same replies at the first fork

    @property
    def splits(self) -> bool:
        """Whether its next step has several alternatives."""
        return self.episode is None and len(self.fanout) > 0 and self.fanout[0] > 1

    def split(self) -> list[RunningEpisode[S]]:
        """Replaces it by one running episode for each alternative of its next step."""
        siblings: Counter[tuple[tuple[int, ...], ...]] | None = None if self.branch else Counter()
        self.branches = [
            replace(
                self,
                conversations=dict(self.conversations),
                contexts=dict(self.contexts),
                forced=dict(self.forced),
                decisions=list(self.decisions),
                fanout=(1, *self.fanout[1:]),
                branch=(*self.branch, index),
                prefix_length=len(self.decisions) if index else self.prefix_length,
                branches=[],
                request_contexts=[],
                replies=[],
                step=[],
                result=[],
                siblings=siblings,
            )
            for index in range(self.fanout[0])
        ]
        return self.branches

    def draw_seed(self, event: str) -> int | None:
        """The seed of its next reply, the same after all alternatives of the first step with several.

        Alternatives with the same text count as replays of one alternative, and each replay of an alternative has
        different random numbers (paper C3, Table 15).
        """
        if self.start.stream is None:
            return None
        first = next((step for step, width in enumerate(self.start.fanout) if width > 1), self.steps)
        shared = self.branch[1:] if self.steps > first else self.branch
        again = ("again", self.again) if self.again else ()
        spoken = sum(decision.event == event for decision in self.decisions)  # does not depend on removed roles
        return derive(0, self.start.stream, spoken, event, *shared, *again)

    def leaves(self) -> Iterator[Episode]:
        """Its finished episodes, in the order of their branches."""
        if self.episode is not None:
            yield self.episode
        for running in self.branches:
            yield from running.leaves()

    def take(self, index: int, max_tokens: int | None, reply: Generation) -> None:
        """Sets a reply, cut to `max_tokens`."""
        if max_tokens is not None and len(reply.ids) > max_tokens:
            logprobs = None if reply.logprobs is None else reply.logprobs[:max_tokens]
            reply = Generation(ids=reply.ids[:max_tokens], logprobs=logprobs)
        self.replies[index] = reply

    def end(self, ending: Ending, decisions: Sequence[Decision], **found: Any) -> None:
        """Ends it with these decisions; `found` are the other fields of its episode."""
        self.episode = Episode(
            decisions=tuple(decisions),
            ending=ending,
            start=self.place,
            branch=self.branch,
            prefix_length=self.prefix_length,
            num_leaves=math.prod(self.fanout),
            scored=self.scored,
            conversations=self.start.conversations,
            earned=self.start.earned,
            **found,
        )
