"""Plurality votes. A vote is the key of an answer, equal for equal answers; `None` abstains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hf_credit.validators import one_of

TIES = ("expected", "first", "none")
"""The score of a tie: the mean of the tied answers' scores, the score of the first voter's tied answer, or 0."""


def plurality(votes: Sequence[str | None]) -> tuple[str, ...]:
    """Returns the answers with the most votes, in the order of their first voters; none if all abstain."""
    counts = Counter(vote for vote in votes if vote is not None)
    most = max(counts.values(), default=0)
    return tuple(answer for answer, count in counts.items() if count == most)


def vote_score(votes: Sequence[str | None], scores: Mapping[str, float], ties: str = "expected") -> float:
    """Returns the score of the plurality's answer (paper CCPO, section 4.1), 0 if all abstain.

    Args:
        votes: of the voters, in order.
        scores: of each answer, in [0, 1].
        ties: one of `TIES`.

    Raises:
        ValueError: `ties` is unknown.
    """
    one_of("ties", ties, TIES)
    winners = plurality(votes)
    if not winners or (ties == "none" and len(winners) > 1):
        return 0.0
    counted = winners if ties == "expected" else winners[:1]
    return sum(scores[answer] for answer in counted) / len(counted)


def scores_without(votes: Sequence[str | None], scores: Mapping[str, float], ties: str = "expected") -> list[float]:
    """Returns the score of the vote without each voter in turn: R_not_i of CCPO, section 4.1.

    Args:
        votes, scores, ties: as in `vote_score`.
    """
    others = ([*votes[:voter], *votes[voter + 1 :]] for voter in range(len(votes)))
    return [vote_score(rest, scores, ties) for rest in others]
