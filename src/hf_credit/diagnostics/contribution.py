"""Who carries a team: credit that goes to free riders, and what each voter adds to a vote (the paper CCPO)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from hf_credit.collaborations.exact_coalitions import vote_values
from hf_credit.collaborations.votes import plurality, require_ties


def free_rider_index(credits: Sequence[float], contributions: Sequence[float]) -> float:
    """The share of all positive credit that went to decisions by which the team gained nothing.

        sum max(A, 0) [c <= 0] / sum max(A, 0)

    Args:
        credits: A of each decision, in any unit.
        contributions: c of each decision, in the unit of the outcome: exact
            (`hf_credit.collaborations.exact_coalitions`) or from replays that were held out. The difference that the
            credit itself was made of will not do: it would judge itself.

    Returns:
        In [0, 1]; NaN where no credit is positive.

    Raises:
        ValueError: there are not as many of both, or a number is not finite.
    """
    if len(credits) != len(contributions):
        raise ValueError(
            f"every credit must have a contribution, got {len(credits)} and {len(contributions)}; drop the others."
        )
    for value in (*credits, *contributions):
        if not math.isfinite(value):
            raise ValueError(f"credits and contributions must be finite, got {value}; drop its decision.")
    pairs = [(max(credit, 0.0), gain) for credit, gain in zip(credits, contributions, strict=True)]
    positive = sum(credit for credit, _ in pairs)
    return sum(credit for credit, gain in pairs if gain <= 0) / positive if positive else math.nan


@dataclass(frozen=True, kw_only=True)
class VoteContribution:
    """What voters add to their votes, as means over instances.

    Attributes:
        accuracy: of the vote, maj@K.
        voters: of each voter's own answers.
        contributions: of each voter, the vote's score less that without it (CCPO, eq. 1).
        shapley: of each voter; they sum to `accuracy`.
        tied, abstained: share of votes that are tied, and of answers that are missing.
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
    """How good the votes are, and what each voter adds to them.

    Args:
        answers: of each instance, the answer of each voter in a normal form, `None` where it has none; the same number
            of voters, in the same order, at each instance.
        golds: of each instance, the right answer in the same form.
        ties: as in `hf_credit.collaborations.votes.vote_score`.

    Raises:
        ValueError: there is no instance, numbers do not match, or `ties` is unknown.
    """
    require_ties(ties)
    voters = {len(own) for own in answers}
    if len(answers) != len(golds) or len(voters) != 1 or 0 in voters:
        raise ValueError(
            "every instance must have a right answer and as many voters as all others, at least one, got "
            f"{len(answers)} and {len(golds)} instances with {', '.join(map(str, sorted(voters))) or 'no'} voters; "
            "fill in None for who is missing."
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
