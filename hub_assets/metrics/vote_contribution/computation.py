"""What `vote_contribution.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import factorial, prod
from statistics import fmean

TIES = ("expected", "first", "none")
"""What a tie is worth: the mean of the tied answers' scores, the score of the one with the first voter, or nothing."""


def plurality(votes: Sequence[str | None]) -> tuple[str, ...]:
    """The answers with the most votes, in the order of their first voters; none where everybody abstains.

    Args:
        votes: of the voters, in their order.
    """
    counts = Counter(vote for vote in votes if vote is not None)
    most = max(counts.values(), default=0)
    return tuple(answer for answer, count in counts.items() if count == most)


def vote_score(votes: Sequence[str | None], scores: Mapping[str, float], ties: str = "expected") -> float:
    """What a vote is worth (paper CCPO, section 4.1): the score of the plurality's answer, 0 where nobody votes.

    Args:
        votes: of the voters, in their order.
        scores: of each answer, in [0, 1].
        ties: one of `TIES`.

    Raises:
        ValueError: `ties` is unknown.
    """
    require_ties(ties)
    winners = plurality(votes)
    if not winners or (ties == "none" and len(winners) > 1):
        return 0.0
    counted = winners if ties == "expected" else winners[:1]
    return sum(scores[answer] for answer in counted) / len(counted)


def require_ties(ties: str) -> None:
    """Refuses a rule that is not there.

    Raises:
        ValueError: it is not one of `TIES`.
    """
    if ties not in TIES:
        raise ValueError(f"ties must be one of {', '.join(TIES)}, got {ties!r}; pick one.")


Answers = Mapping[str, Mapping[str | None, float]]
"""Of each role, how likely it gives each answer; `None` abstains. What was left out counts as worth nothing."""


@dataclass(frozen=True, kw_only=True)
class CoalitionValues:
    """A team at a task.

    Attributes:
        roles: of the team, in their order.
        values: J(S), the expected outcome where only the roles of S are there; 0 where nobody of it answers.
    """

    roles: tuple[str, ...]
    values: Mapping[frozenset[str], float]

    @property
    def value(self) -> float:
        """J of the whole team."""
        return self.values[frozenset(self.roles)]

    def contribution(self, role: str) -> float:
        """What the team gains by a role: C_i = J - J without it."""
        return self.value - self.values[frozenset(self.roles) - {role}]

    def shapley(self, role: str) -> float:
        """What a role adds, averaged over all orders in which the team could have come together (Shapley, 1953).

            phi_i = sum over S without i of |S|! (K - |S| - 1)! / K! (J(S + i) - J(S))

        They sum to J of the team less J of nobody.
        """
        others = [one for one in self.roles if one != role]
        size = len(self.roles)
        return sum(
            factorial(len(part))
            * factorial(size - len(part) - 1)
            / factorial(size)
            * (self.values[part | {role}] - self.values[part])
            for part in _parts(others)
        )


def vote_values(answers: Answers, scores: Mapping[str, float], ties: str = "expected") -> CoalitionValues:
    """The value of every coalition of voters who answer independently of each other.

    The number of ways is the product of how many answers each may give.

    Args:
        answers: of each voter, in their order.
        scores: of each answer, in [0, 1].
        ties: as in `hf_credit.collaborations.votes.vote_score`.
    """
    roles = tuple(answers)
    values = {
        part: sum(
            chance * vote_score(votes, scores, ties)
            for chance, votes in _ways([answers[role] for role in roles if role in part])
        )
        for part in _parts(roles)
    }
    return CoalitionValues(roles=roles, values=values)


def _parts(roles: Sequence[str]) -> Iterator[frozenset[str]]:
    for size in range(len(roles) + 1):
        yield from map(frozenset, combinations(roles, size))


def _ways(answers: Sequence[Mapping[str | None, float]]) -> Iterator[tuple[float, tuple[str | None, ...]]]:
    """Every way in which independent voters may answer, and how likely it is."""
    for way in product(*(own.items() for own in answers)):
        yield prod(chance for _, chance in way), tuple(answer for answer, _ in way)


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
