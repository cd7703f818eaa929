"""The result of a rollout: decisions, and their episode."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hf_credit.deprecated import renamed_fields


class Ending(StrEnum):
    """How an episode ended."""

    FINISHED = "finished"
    """The rules of the task ended it."""
    TRUNCATED = "truncated"
    """The next context would not have fitted the model, or credit assignment removed the rest."""
    CUT = "cut"
    """A truncation rule stopped it in training (`Truncated` of paper T3)."""
    TURN_LIMIT = "turn_limit"
    """It was not over after the maximum number of turns."""
    INVALID_ACTION = "invalid_action"
    """A reply held no readable or no legal action."""
    ERROR = "error"
    """Code outside the model failed: the world, or an oracle. `Episode.error` has the failure."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An oracle's judgement of one decision.

    Attributes:
        score: the process reward, in [0, 1] (paper VPR, eq. 2).
        valid: whether the oracle accepts the action at all.
    """

    score: float
    valid: bool


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One reply of one role, and everything needed to credit, train on and replay it.

    Attributes:
        role: that replied.
        state: the state of the Interaction before the decision; a replay starts from it.
        context_ids: the tokens the model read.
        action_ids: the tokens the model generated, including the end-of-turn token if it reached one.
        logprobs: the sampler's log-probability of each action token in nats, or `None` if it reports none.
        action_text: the reply as text, without special tokens.
        event: the event type of the decision; by default the role itself.
        reward: the Interaction's reward for the step of this reply.
        verdict: an oracle's verdict, or `None` without an oracle or if it failed.
        trained: whether it may be trained on; if not, it gets no credit.
        observed: whether its role is untrained (`Learned.untrained`): for trained roles it is part of the observation,
            not a turn.
        id: unique id: episodes that share decisions before a split have the same ids there, and a copy with another
            verdict keeps it.
        step: number of its step in the episode, counted from 0; the decisions of a step are simultaneous. With `None`,
            consecutive decisions with the same state object form a step.
        extras: by name, notes of a collector or a method for itself.
    """

    role: str
    state: Any
    context_ids: tuple[int, ...]
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
        """Whether it was simultaneous with another decision of its episode."""
        if self.step is None or other.step is None:
            return self.state is other.state
        return self.step == other.step


@renamed_fields({"path": "branch", "inherited": "prefix_length", "ways": "num_leaves"})
@dataclass(frozen=True, kw_only=True)
class Episode:
    """One episode of an Interaction.

    Attributes:
        decisions: in the order they were made.
        outcome: the Interaction's outcome of the whole episode.
        ending: how it ended.
        metrics: the Interaction's metrics, such as `success`.
        error: the failure in one line, if `ending` is `ERROR`.
        exception: the failure itself, if it happened in this process; not compared or shown.
        start: the index of its start among those that were run together.
        branch: if its start had alternatives, the index of its alternative at each step that had several.
        prefix_length: number of its first decisions that an earlier episode of the same start also contains. They have
            the same ids there, were sampled once, and count once.
        num_leaves: number of leaves of its start's tree that it replaces: 1, or more if it ended before a split.
        scored: number of scores of the outcome (`Metered.scores`): 0 if the outcome was not computed; it is then NaN,
            or 0 after an error.
        next_context: for a cut episode, the tokens of the next context, if they are known.
        final_state: its last state, for continuing it without a role; `None` after an error.
        extras: by name, notes of a collector or a method for itself.
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
    next_context: tuple[int, ...] | None = None
    final_state: Any = field(default=None, compare=False, repr=False)
    extras: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def own_decisions(self) -> tuple[Decision, ...]:
        """The decisions that are in no earlier episode of the same start."""
        return self.decisions[self.prefix_length :]

    @property
    def turns(self) -> int:
        """Number of decisions of trained roles."""
        return sum(not decision.observed for decision in self.decisions)

    @property
    def steps(self) -> tuple[tuple[Decision, ...], ...]:
        """The simultaneous decisions, from one state, in order."""
        steps: list[list[Decision]] = []
        for decision in self.decisions:
            at_once = bool(steps) and decision.in_step_of(steps[-1][0])
            if at_once and all(decision.event != other.event for other in steps[-1]):
                steps[-1].append(decision)
            else:
                steps.append([decision])
        return tuple(tuple(step) for step in steps)

    @property
    def generated_tokens(self) -> int:
        """Number of tokens that the model generated in this episode and in no earlier one of the same start."""
        return sum(len(decision.action_ids) for decision in self.own_decisions)
