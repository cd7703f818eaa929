"""What every part of a team is worth, by enumeration: the truth that counterfactual credit is measured with.

It is for policies and replies so small that every reply can be looked at, as in `exact_values`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import factorial, prod
from typing import Any, TypeVar

from hf_credit.collaborations.exact_values import Policies, exact_values, reply_probabilities
from hf_credit.collaborations.text import normalise
from hf_credit.collaborations.votes import vote_score
from hf_credit.collaborations.voting import Voting, VotingState
from hf_credit.rollouts import Chat, Interaction
from hf_credit.rollouts.capabilities import Removable

S = TypeVar("S")
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


def vote_contributions(
    answers: Answers, scores: Mapping[str, float], ties: str = "expected"
) -> dict[str, dict[str | None, float]]:
    """What the team gains by each answer of each voter: c_i(m) = E[R | i says m] - E[R without i].

    Args:
        answers, scores, ties: as in `vote_values`.
    """
    whole = vote_values(answers, scores, ties)
    found = {}
    for role, own in answers.items():
        without = whole.values[frozenset(answers) - {role}]
        given = {one: vote_values({**answers, role: {one: 1.0}}, scores, ties).value for one in own}
        found[role] = {one: value - without for one, value in given.items()}
    return found


def answer_probabilities(
    voting: Voting, chat: Chat, model: Policies, state: VotingState, **limits: Any
) -> tuple[dict[str, dict[str | None, float]], dict[str, float]]:
    """How likely each voter gives each answer at a task, and what each answer is worth.

    Args:
        voting: the vote.
        chat, model, **limits: as in `hf_credit.collaborations.exact_values.reply_probabilities`.
        state: its start.
    """
    requests = voting.pending(state)
    row = state.row
    answers: dict[str, dict[str | None, float]] = {}
    scores: dict[str, float] = {}
    for request, replies in zip(requests, reply_probabilities(chat, model, requests, **limits), strict=True):
        own = answers.setdefault(request.role, {})
        for reply, chance in replies.items():
            said = normalise(reply)
            answer = voting.answer(said)
            own[answer] = own.get(answer, 0.0) + chance
            if answer is not None and answer not in scores:
                scores[answer] = float(voting.scorer(row, said))
    return answers, scores


def sequence_values(
    interaction: Interaction[S], chat: Chat, model: Policies, state: S, **limits: Any
) -> CoalitionValues:
    """The value of every coalition of a team that speaks one after the other, such as thinkers and a solver.

    A coalition without the one who answers is worth 0.

    Args:
        interaction: says what it is without a role.
        chat, model, **limits: as in `hf_credit.collaborations.exact_values.exact_values`.
        state: its start.
    """
    team = Removable(interaction)
    roles, removable = tuple(interaction.roles), {*team.removable}
    values = {}
    for part in _parts(roles):
        gone = [role for role in roles if role not in part]
        left = state
        for role in gone if removable.issuperset(gone) else ():
            left = team.without(left, role)
        whole = removable.issuperset(gone)
        values[part] = exact_values(interaction, chat, model, [left], **limits)[0].value if whole else 0.0
    return CoalitionValues(roles=roles, values=values)


def message_contributions(
    interaction: Interaction[S], chat: Chat, model: Policies, state: S, **limits: Any
) -> dict[str, float]:
    """What the team gains by each message of the role that speaks in a state: c(m) = E[R | m] - E[R without it].

    Args:
        interaction, chat, model, **limits: as in `sequence_values`.
        state: in which one role speaks that can be left out.
    """
    (request,) = interaction.pending(state)
    left = Removable(interaction).without(state, request.role)
    told, alone = (exact_values(interaction, chat, model, [one], **limits)[0] for one in (state, left))
    return {text: value - alone.value for text, value in told.values.items()}


def _parts(roles: Sequence[str]) -> Iterator[frozenset[str]]:
    for size in range(len(roles) + 1):
        yield from map(frozenset, combinations(roles, size))


def _ways(answers: Sequence[Mapping[str | None, float]]) -> Iterator[tuple[float, tuple[str | None, ...]]]:
    """Every way in which independent voters may answer, and how likely it is."""
    for way in product(*(own.items() for own in answers)):
        yield prod(chance for _, chance in way), tuple(answer for answer, _ in way)
