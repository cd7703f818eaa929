"""Training rows of credited decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hf_credit.rollouts.episode import Context, Decision, Episode

Value = TypeVar("Value")

DecisionCredit = float | Sequence[float] | None
"""Credit of a decision: one number for all its tokens, or one for each token; with `None` it is not trained on."""
DecisionCredits = Sequence[Sequence[DecisionCredit]]
"""Of the decisions of each episode."""


def one_number(credit: DecisionCredit) -> float | None:
    """Returns the credit of a decision as one number: the mean over its tokens if each has its own."""
    if isinstance(credit, Sequence):
        return sum(credit) / len(credit) if credit else None
    return credit


@dataclass(frozen=True, kw_only=True)
class Row:
    """One training sequence. All attributes after `prompt_ids` but `role` have one entry per completion token.

    Attributes:
        prompt_ids: the context of the first decision.
        completion_ids: action tokens, and the context tokens that were appended between them.
        loss_mask: 1 on action tokens of decisions with credit, 0 on all others.
        advantages: the advantage of the token, or of its decision; 0 outside the mask.
        logprobs: the sampler's log-probability of each action token, 0 on others; `None` if it reported none.
        role: the role of the decisions; empty for a row without a role.
        marks: 1 on the tokens marked in `decision_rows`; `None` without marks.
    """

    prompt_ids: Context
    completion_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    advantages: tuple[float, ...]
    logprobs: tuple[float, ...] | None
    role: str = ""
    marks: tuple[int, ...] | None = None

    @classmethod
    def without_credit(cls, prompt_ids: Context, completion_ids: Sequence[int]) -> Row:
        """Returns a row with advantages of 0 and all completion tokens in the mask, for forward passes."""
        return cls(
            prompt_ids=prompt_ids,
            completion_ids=tuple(completion_ids),
            loss_mask=(1,) * len(completion_ids),
            advantages=(0.0,) * len(completion_ids),
            logprobs=None,
        )


def by_episode(episodes: Sequence[Episode], credit: Mapping[str, Value]) -> list[list[Value | None]]:
    """Returns the value of each decision of each episode; `None` if it is missing.

    A decision that several episodes share has its value only in the first, so that it is trained on once.

    Args:
        episodes: the episodes, in order.
        credit: the values by id of the decision.
    """
    rest = dict(credit)
    return [[rest.pop(decision.id, None) for decision in episode.decisions] for episode in episodes]


def decision_rows(
    decisions: Sequence[Decision],
    advantages: Sequence[DecisionCredit],
    marks: Sequence[Sequence[int]] | None = None,
) -> list[Row]:
    """Returns the training rows of one episode.

    A decision continues the row of the last decision of its event type if it has the same role and its context extends
    that row; otherwise it starts a new row. So an episode with appended history costs one forward pass over its
    tokens, for any number of turns.

    Args:
        decisions: the decisions of the episode, in order.
        advantages: for each decision one number for all its tokens, or one for each token; `None` excludes the
            decision from the loss and from every mean.
        marks: 0 or 1 for each token of each decision, for `Row.marks`.

    Raises:
        ValueError: the numbers of tokens and of advantages of a decision differ.
    """
    open_rows: dict[str, _OpenRow] = {}
    rows: list[_OpenRow] = []
    each = [None] * len(decisions) if marks is None else marks
    for decision, advantage, own in zip(decisions, advantages, each, strict=True):
        row = open_rows.get(decision.event)
        if row is None or not row.continued_by(decision):
            row = _OpenRow(decision)
            rows.append(row)
            open_rows[decision.event] = row
        row.append(decision, advantage, own)
    return [row.close() for row in rows if any(row.loss_mask)]


def sequence_mean(rows: Sequence[Row], tokens: float, sequences: float) -> list[Row]:
    """Returns the rows of one episode with advantages scaled so that the mean over all tokens of an update is the mean
    over episodes of their means over tokens.

        A'[t] = A[t] tokens / (n sequences),   n the number of tokens of this episode

    This holds for terms that are linear in advantages; a separate penalty stays a mean over tokens.

    Args:
        rows: the rows of the episode.
        tokens: number of tokens in the loss of the update, over all processes.
        sequences: number of episodes with tokens in the loss, over all processes.
    """
    own = sum(sum(row.loss_mask) for row in rows)
    return [
        replace(row, advantages=tuple(value * tokens / (own * sequences) for value in row.advantages)) for row in rows
    ]


class _OpenRow:
    def __init__(self, decision: Decision) -> None:
        self.role = decision.role
        self.prompt = decision.context_ids
        self.ids = decision.context_ids
        self.loss_mask: list[int] = []
        self.advantages: list[float] = []
        self.reported = decision.logprobs is not None
        self.logprobs: list[float] = []
        self.marks: list[int] | None = None

    def continued_by(self, decision: Decision) -> bool:
        same_sampler = self.role == decision.role and self.reported == (decision.logprobs is not None)
        return same_sampler and decision.context_ids[: len(self.ids)] == self.ids

    def append(self, decision: Decision, advantage: DecisionCredit, marks: Sequence[int] | None) -> None:
        added, tokens = len(decision.context_ids) - len(self.ids), len(decision.action_ids)
        each = [*advantage] if isinstance(advantage, Sequence) else [advantage or 0.0] * tokens
        if len(each) != tokens:
            raise ValueError(
                f"credit must be one number for each of a decision's {tokens} tokens, got {len(each)}; give as many, "
                "or one number for the whole decision."
            )
        self.ids = decision.context_ids + decision.action_ids
        self.loss_mask += [0] * added + [int(advantage is not None)] * tokens
        self.advantages += [0.0] * added + each
        if decision.logprobs is not None:
            self.logprobs += [0.0] * added + list(decision.logprobs)
        if marks is not None:
            self.marks = [*(self.marks or []), *[0] * added, *marks]

    def close(self) -> Row:
        return Row(
            prompt_ids=self.prompt,
            completion_ids=self.ids[len(self.prompt) :],
            loss_mask=tuple(self.loss_mask),
            advantages=tuple(self.advantages),
            logprobs=tuple(self.logprobs) if self.reported else None,
            role=self.role,
            marks=None if self.marks is None else tuple(self.marks),
        )
