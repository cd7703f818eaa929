"""Contributions in teams: the share of credit for free riders, and the contribution of each voter (paper CCPO)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from hf_credit.collaborations.exact_coalitions import vote_values
from hf_credit.collaborations.voting import plurality


def free_rider_index(credits: Sequence[float], contributions: Sequence[float]) -> float:
    """Returns the share of positive credit for decisions that contributed nothing to the team's outcome.

        sum max(A, 0) [c <= 0] / sum max(A, 0),   in [0, 1]; NaN if no credit is positive

    Args:
        credits: the credit A of each decision, in any unit.
        contributions: the contribution c of each decision, in the unit of the outcome: exact
            (`hf_credit.collaborations.exact_coalitions`) or from held-out replays. It must be independent of the
            episodes from which the credit was computed.

    Raises:
        ValueError: the lengths differ, or a number is not finite.
    """
    if len(credits) != len(contributions):
        raise ValueError(
            f"credits and contributions must have the same length, got {len(credits)} and {len(contributions)}; pass "
            "one of each per decision."
        )
    for value in (*credits, *contributions):
        if not math.isfinite(value):
            raise ValueError(f"credits and contributions must be finite, got {value}; omit this decision.")
    pairs = [(max(credit, 0.0), gain) for credit, gain in zip(credits, contributions, strict=True)]
    positive = sum(credit for credit, _ in pairs)
    return sum(credit for credit, gain in pairs if gain <= 0) / positive if positive else math.nan


@dataclass(frozen=True, kw_only=True)
class VoteContribution:
    """The accuracy of votes and the contributions of voters, as means over instances.

    Attributes:
        accuracy: the accuracy of the vote, maj@K.
        voters: the accuracy of each voter.
        contributions: for each voter, the score of the vote minus the score without this voter (CCPO, eq. 1).
        shapley: the Shapley value of each voter; they sum to `accuracy`.
        tied, abstained: the share of tied votes, and of missing answers.
    """

    accuracy: float
    voters: list[float]
    contributions: list[float]
    shapley: list[float]
    tied: float
    abstained: float


def vote_contribution(
    answers: Sequence[Sequence[str | None]], golds: Sequence[str], ties: str = "expected"
) -> VoteContribution:
    """Computes the accuracy of votes and the contribution of each voter.

    Args:
        answers: for each instance, the answer of each voter in a normal form, or `None` for a missing answer; all
            instances have the same voters in the same order.
        golds: for each instance, the right answer in the same form.
        ties: as in `hf_credit.collaborations.voting.vote_score`.

    Raises:
        ValueError: there is no instance, numbers of answers differ, or `ties` is unknown.
    """
    voters = {len(own) for own in answers}
    if len(answers) != len(golds) or len(voters) != 1 or 0 in voters:
        raise ValueError(
            "every instance must have a right answer and the same number of voters, at least one, got "
            f"{len(answers)} and {len(golds)} instances with {', '.join(map(str, sorted(voters))) or 'no'} voters; "
            "pass None for missing answers."
        )
    names = [str(place) for place in range(voters.pop())]
    found = []
    for own, gold in zip(answers, golds, strict=True):
        scores = {answer: float(answer == gold) for answer in own if answer is not None}
        found.append(vote_values({name: {answer: 1.0} for name, answer in zip(names, own, strict=True)}, scores, ties))
    return VoteContribution(
        accuracy=fmean(one.value for one in found),
        voters=[fmean(one.values[frozenset({name})] for one in found) for name in names],
        contributions=[fmean(one.contribution(name) for one in found) for name in names],
        shapley=[fmean(one.shapley(name) for one in found) for name in names],
        tied=fmean(float(len(plurality(own)) > 1) for own in answers),
        abstained=fmean(float(answer is None) for own in answers for answer in own),
    )
