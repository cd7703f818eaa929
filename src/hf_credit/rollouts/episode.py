"""What a rollout leaves behind: decisions, and the episode they make up."""

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
    """The next context would not have fitted the model, or credit assignment cut the rest off."""
    CUT = "cut"
    """A rule of truncation stopped it in training (`Truncated` of paper T3)."""
    TURN_LIMIT = "turn_limit"
    """It was still going after the most turns allowed."""
    INVALID_ACTION = "invalid_action"
    """A reply held no readable or no legal action."""
    ERROR = "error"
    """Code outside the model failed: the world, or an oracle. `Episode.error` says how."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What an oracle says of one decision.

    Attributes:
        score: the process reward, in [0, 1] (paper VPR, eq. 2).
        valid: whether the oracle accepts the action at all.
    """

    score: float
    valid: bool


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One reply of one role, and all that is needed to credit, train on and replay it.

    Attributes:
        role: who decided.
        state: the state of the Interaction before the decision; a replay starts from it.
        context_ids: the tokens the model was given.
        action_ids: the tokens the model produced, its end-of-turn token included where it came to one.
        logprobs: the sampler's log-probability of each action token in nats, or `None` where it reports none.
        action_text: the reply as text, without special tokens.
        event: the type of the event that the decision was; the role itself if left out.
        reward: what the Interaction paid for the step that this reply was part of.
        verdict: what an oracle said of it, or `None` where none was asked or it failed.
        trained: whether it may be trained on; if not, it gets no credit.
        observed: whether its role is never learned from (`Learned.untrained`): to those that are, it is part of
            what they observe, and no turn.
        id: which decision this is, one of a kind: episodes that share what came before a split hold decisions of the
            same ids there, and a copy with another verdict keeps it.
        step: which step of its episode it is part of, counted from 0; the decisions of a step were made at once.
            `None` where nobody counted: then those in a row that hold one state, the same object, make up a step.
        extras: by name, what a collector or a method notes of it that no other needs.
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
        """Whether it was made at the same time as another decision of its episode."""
        if self.step is None or other.step is None:
            return self.state is other.state
        return self.step == other.step


@renamed_fields({"path": "branch", "inherited": "prefix_length", "ways": "num_leaves"})
@dataclass(frozen=True, kw_only=True)
class Episode:
    """One walk through an Interaction.

    Attributes:
        decisions: in the order they were made.
        outcome: what the Interaction says the whole walk was worth.
        ending: how it ended.
        metrics: what the Interaction reports of it, such as `success`.
        error: the failure in one line, where `ending` is `ERROR`.
        exception: the failure itself, where it happened in this process; no part of what is compared or shown.
        start: the place of its start among those that were run together.
        branch: where its start had alternatives, which one was taken at each step that had several.
        prefix_length: how many of its first decisions an earlier episode of the same start holds already. They have
            the same ids there, were made once, and count once.
        num_leaves: how many leaves of its start's tree it stands for: 1, or more where it ended before a split.
        scored: how many scores the outcome took (`Metered.scores`): 0 where the Interaction was not asked for it,
            and then the outcome is NaN, or 0 after an error.
        next_context: of one that was cut, the tokens that the model would have been given next, if they are known.
        final_state: where it ended, for who wants to know what comes of it without a role; `None` after an error.
        extras: by name, what a collector or a method notes of it that no other needs.
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
        """The decisions that no earlier episode of the same start holds."""
        return self.decisions[self.prefix_length :]

    @property
    def turns(self) -> int:
        """How many decisions it took of the roles that are learned from."""
        return sum(not decision.observed for decision in self.decisions)

    @property
    def steps(self) -> tuple[tuple[Decision, ...], ...]:
        """The decisions that were made at once, from one state, in their order."""
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
        """How many tokens the model produced in this episode and in no earlier one of the same start."""
        return sum(len(decision.action_ids) for decision in self.own_decisions)
