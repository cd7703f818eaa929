"""Exact values of all coalitions of a team, by enumeration as in `exact_values`: to compare estimates with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import comb, prod

from hf_credit.collaborations.voting import vote_score

Answers = Mapping[str, Mapping[str | None, float]]
"""For each role, the probability of each answer; `None` abstains. Omitted answers count as 0."""


@dataclass(frozen=True, kw_only=True)
class CoalitionValues:
    """The values of a team's coalitions at a task."""

    roles: tuple[str, ...]  # of the team, in order
    # J(S), the expected outcome with only the roles of S; 0 if none of them answers
    values: Mapping[frozenset[str], float]

    @property
    def value(self) -> float:
        """J of the whole team."""
        return self.values[frozenset(self.roles)]

    def contribution(self, role: str) -> float:
        """Returns the contribution of a role: C_i = J - J without it."""
        return self.value - self.values[frozenset(self.roles) - {role}]

    def shapley(self, role: str) -> float:
        """Returns the Shapley value of a role: its mean contribution over all orders of the team (Shapley, 1953).

            phi_i = sum over S without i of |S|! (K - |S| - 1)! / K! (J(S + i) - J(S))

        The values of all roles sum to J of the team minus J of the empty coalition.
        """
        others = [other for other in self.roles if other != role]
        size = len(self.roles)
        return sum(
            (self.values[part | {role}] - self.values[part]) / (size * comb(size - 1, len(part)))
            for part in _coalitions(others)
        )


def vote_values(answers: Answers, scores: Mapping[str, float], ties: str = "expected") -> CoalitionValues:
    """Returns the value of every coalition of independent voters.

    The cost grows with the product of the voters' numbers of answers.

    Args:
        answers: of each voter, in order.
        scores: of each answer, in [0, 1].
        ties: as in `hf_credit.collaborations.voting.vote_score`.
    """
    roles = tuple(answers)
    values = {
        part: sum(
            prod(probability for _, probability in joint) * vote_score([answer for answer, _ in joint], scores, ties)
            for joint in product(*(answers[role].items() for role in roles if role in part))
        )
        for part in _coalitions(roles)
    }
    return CoalitionValues(roles=roles, values=values)


def _coalitions(roles: Sequence[str]) -> Iterator[frozenset[str]]:
    for size in range(len(roles) + 1):
        yield from map(frozenset, combinations(roles, size))
