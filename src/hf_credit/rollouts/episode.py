"""Episodes and their decisions, the result of a rollout."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hf_credit.oracles.base import ACCEPTED_ABOVE

Context = tuple[int, ...]
"""What a model reads before a reply: the token ids of a conversation, from `Chat`. Samplers, caches and rows pass it
on as a value; what a model reads besides tokens is an attribute of a subclass (`hf_credit.rollouts.media`)."""


class Ending(StrEnum):
    """How an episode ended."""

    FINISHED = "finished"
    """The rules of the task ended it."""
    TRUNCATED = "truncated"
    """The next context exceeded the limit, or credit assignment removed the rest."""
    CUT = "cut"
    """A truncation rule stopped it in training (`Truncated` of paper T3)."""
    TURN_LIMIT = "turn_limit"
    """It reached the maximum number of turns."""
    INVALID_ACTION = "invalid_action"
    """A reply had no readable or no legal action."""
    ERROR = "error"
    """The code of the environment or of an oracle failed. `Episode.error` has the failure."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An oracle's judgement of one decision.

    Attributes:
        score: the process reward, in [0, 1] (paper VPR, eq. 2).
    """

    score: float

    @property
    def valid(self) -> bool:
        """Whether the oracle accepts the action."""
        return self.score > ACCEPTED_ABOVE


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One reply of one role, with everything needed to credit, train on and replay it.

    Attributes:
        role: the role that replied.
        state: the state of the Interaction before the decision; a replay starts from it.
        context_ids: the tokens of the model's context.
        action_ids: the tokens the model generated, including an end-of-turn token.
        logprobs: the sampler's log-probability of each action token in nats, or `None` if it reports none.
        action_text: the reply as text, without special tokens.
        event: the event type of the decision; by default the role.
        reward: the Interaction's reward for the step of this reply.
        verdict: an oracle's verdict; `None` without an oracle or if it failed.
        trained: whether it may be trained on; if not, it gets no credit.
        observed: whether its role is untrained (`TrainedRoles.untrained`), so that it is part of the observation of
            trained roles and not a turn.
        id: a unique id, the same in all episodes that share the decision, and in copies.
        step: the number of its step in the episode, counted from 0; the decisions of a step are simultaneous. If
            `None`, consecutive decisions with the same state object form a step.
        extras: data of a collector or a method, by name.
    """

    role: str
    state: Any
    context_ids: Context
    action_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    action_text: str
    event: str = ""
    reward: float = 0.0
    verdict: Verdict | None = None
    trained: bool = True
    observed: bool = False
    id: str = field(default_factory=functools.partial(secrets.token_hex, 16), compare=False)
    step: int | None = field(default=None, compare=False)
    extras: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "event", self.event or self.role)

    def in_step_of(self, other: Decision) -> bool:
        """Returns whether it was simultaneous with another decision of its episode."""
        if self.step is None or other.step is None:
            return self.state is other.state
        return self.step == other.step


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One episode of an Interaction.

    Attributes:
        decisions: its decisions, in order.
        outcome: the Interaction's outcome of the whole episode; NaN if it is unknown, since it was not computed or the
            episode failed before.
        ending: how it ended.
        metrics: the Interaction's metrics, such as `success`.
        error: the failure in one line, if `ending` is `ERROR`.
        exception: the exception, if it was raised in this process; not compared or shown.
        start: the index of its request among those that were run together.
        branch: the index of its alternative at each step with several alternatives.
        prefix_length: number of its first decisions that it shares with an earlier episode of the same request. They
            have the same ids, were sampled once, and count once.
        num_leaves: number of leaves of the request's tree that it counts for: 1, or more if it ended before a planned
            fork.
        scored: number of scores of the outcome (`Costs.scores`); 0 if the outcome was not computed.
        next_context: for a cut episode, the tokens of the next context, if they are known.
        earned: the sum of the rewards before its first decision, which its outcome includes, if it began later.
        conversations: the conversations before its first decision, by event type, if it began at a later state.
        final_state: its last state, from which it can be continued without a role; `None` after an error.
        extras: data of a collector or a method, by name.
    """

    decisions: tuple[Decision, ...]
    outcome: float
    ending: Ending
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    exception: Exception | None = field(default=None, compare=False, repr=False)
    start: int = field(default=0, compare=False)
    branch: tuple[int, ...] = ()
    prefix_length: int = 0
    num_leaves: int = 1
    scored: int = 1
    next_context: Context | None = None
    earned: float = field(default=0.0, compare=False)
    conversations: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    final_state: Any = field(default=None, compare=False, repr=False)
    extras: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def steps_before(self) -> int:
        """The number of steps before its first decision, above 0 if it began at a later state of its task."""
        return (self.decisions[0].step or 0) if self.decisions else 0

    @property
    def own_decisions(self) -> tuple[Decision, ...]:
        """The decisions that are not shared with an earlier episode of the same request."""
        return self.decisions[self.prefix_length :]

    @property
    def turns(self) -> int:
        """The number of decisions of trained roles."""
        return sum(not decision.observed for decision in self.decisions)

    @property
    def steps(self) -> tuple[tuple[Decision, ...], ...]:
        """The decisions of each step, which are simultaneous, in order."""
        steps: list[list[Decision]] = []
        for decision in self.decisions:
            simultaneous = bool(steps) and decision.in_step_of(steps[-1][0])
            if simultaneous and all(decision.event != other.event for other in steps[-1]):
                steps[-1].append(decision)
            else:
                steps.append([decision])
        return tuple(tuple(step) for step in steps)

    @property
    def generated_tokens(self) -> int:
        """The number of generated tokens in `own_decisions`."""
        return sum(len(decision.action_ids) for decision in self.own_decisions)
