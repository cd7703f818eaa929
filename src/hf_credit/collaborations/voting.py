"""A vote of K agents: the parallel topology of the paper CCPO (sections 3 and 4.1, Appendix B.3).

A vote is the key of an answer, equal for equal answers; `None` abstains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hf_credit.collaborations.base import Collaboration, CollaborationState
from hf_credit.collaborations.graph import Event
from hf_credit.collaborations.scorers import Scorer, check_score
from hf_credit.registry import find, remembers_its_call
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


Extractor = Callable[[str], str | None]
"""Returns the canonical form of a reply's answer, equal for equal answers; `None` if it has no answer."""

VOTER_PROMPT = (
    "Solve the problem step by step. Put the final answer, or the letter of the right option, into \\boxed{}."
)
"""Ours; the paper shows none."""


@dataclass(frozen=True, kw_only=True)
class VotingState(CollaborationState):
    """The state of a vote."""

    # after all replies, (role, answer) of each voter, in order; `None` abstains
    ballots: tuple[tuple[str, str | None], ...] = ()
    grades: tuple[tuple[str, float], ...] = ()  # the score of each answer, in the order of their first voters
    asked: int = 0  # the number of scores that the last step computed


class Voting(Collaboration):
    """All voters see only the problem and answer simultaneously; the answer with the most votes is the team's.

    A reply without an answer abstains. After all replies, each distinct answer is scored once, by its first reply. So
    the score without a voter needs no new replies and no new scores.

    Args:
        roles: the system prompt of each voter, in order.
        scorer: scores the answer of a reply, given the task row, in [0, 1].
        extract: returns the canonical form of a reply's answer, or `None`.
        ties: as in `hf_credit.collaborations.voting.vote_score`.
        columns: the column of the task row that each voter sees as the problem.

    Raises:
        ValueError: `ties` is unknown, there is no voter, the scorer has a parameter `transcript`, or as for
            `Collaboration`.
    """

    state_type = VotingState

    def __init__(
        self,
        roles: Mapping[str, str],
        scorer: Scorer | str,
        extract: Extractor | str,
        columns: Mapping[str, str],
        ties: str = "expected",
    ) -> None:
        self.ties = one_of("ties", ties, TIES)
        if not roles:
            raise ValueError("a vote must have a voter, got none; name one or more.")
        events = [Event(name, role=name, column=columns[name]) for name in roles]
        super().__init__(roles=roles, events=events, final=tuple(roles), scorer=scorer)
        if self._scores_transcript:
            raise ValueError(
                "the scorer of a vote must be a function of a task and a text, got one with a transcript; pass "
                "score(task, text), since answers are scored once, with or without a voter."
            )
        self.extract: Extractor = find("function", {}, extract) if isinstance(extract, str) else extract

    @property
    def removable(self) -> tuple[str, ...]:
        return tuple(self.roles) if len(self.roles) > 1 else ()

    def show(self, problem: str, heard: Sequence[tuple[str, str]]) -> str:
        return problem

    def advance(self, state: CollaborationState, replies: Sequence[str]) -> VotingState:
        after: Any = super().advance(state, replies)
        ballots = tuple((role, self.answer(reply)) for role, reply in after.transcript)
        row, grades = after.row, dict[str, float]()
        for (_, answer), (_, reply) in zip(ballots, after.transcript, strict=True):
            if answer is not None and answer not in grades:
                grades[answer] = check_score(self.scorer(row, reply), self.scorer)
        return replace(after, ballots=ballots, grades=tuple(grades.items()), asked=len(grades))

    def answer(self, reply: str) -> str | None:
        """Returns the vote of a reply.

        Raises:
            ValueError: the extractor returned neither a text nor `None`.
        """
        answer = self.extract(reply)
        if not isinstance(answer, str | None):
            name = getattr(self.extract, "__qualname__", type(self.extract).__name__)
            raise ValueError(
                f"an extractor must return a text or None, got {repr(answer)[:100]} from {name}; correct the "
                "extractor."
            )
        return answer or None

    def without(self, state: CollaborationState, role: str) -> VotingState:
        rest: Any = super().without(state, role)
        return replace(rest, ballots=tuple(ballot for ballot in rest.ballots if ballot[0] != role), asked=0)

    def outcome(self, state: Any) -> float:
        return vote_score([answer for _, answer in state.ballots], dict(state.grades), self.ties)

    def scores(self, state: Any) -> int:
        return int(state.asked)

    def metrics(self, state: Any) -> Mapping[str, float]:
        """Returns whether the vote is tied, the share of abstentions, and the score of each voter's answer."""
        if not state.ballots:
            return {}
        answers, grades = [answer for _, answer in state.ballots], dict(state.grades)
        return {
            "votes/tied": float(len(plurality(answers)) > 1),
            "votes/abstained": answers.count(None) / len(answers),
            **{f"votes/score/{role}": grades.get(answer or "", 0.0) for role, answer in state.ballots},
        }


@remembers_its_call("voting")
def voting(
    scorer: Scorer | str,
    extract: Extractor | str,
    voters: int | Sequence[str] = 3,
    ties: str = "expected",
    column: str = "problem",
    prompt: str = VOTER_PROMPT,
) -> Voting:
    """Returns the collaboration.

    With one policy for all (no `role_adapters`) it is self-consistency, maj@K: K samples at one prompt, and a vote.

    Args:
        scorer: scores the answer of a reply, given the task row, in [0, 1]: a function, or its
            `"package.module:function"`.
        extract: returns the vote of a reply, or is named like a scorer: `"hf_credit.verifiers.options:option_key"` for
            letters, `"hf_credit.verifiers.options:answer_key"` for mathematics.
        voters: their number, with the names `voter_1` and so on, or their names.
        ties: `"expected"`, the mean score of the tied answers, which is symmetric in the voters; `"first"`, the score
            of the first voter's tied answer; `"none"`, 0.
        column: the column of the task row that all see as the problem.
        prompt: the system prompt of all.

    Raises:
        ValueError: there is no voter, a name occurs twice, `ties` is unknown, or the scorer or extractor is invalid.
    """
    numbered = [f"voter_{number + 1}" for number in range(voters)] if isinstance(voters, int) else voters
    names = (numbered,) if isinstance(numbered, str) else tuple(numbered)
    if len(set(names)) < len(names):
        raise ValueError(f"voters must have different names, got {', '.join(names)}; rename one.")
    return Voting(dict.fromkeys(names, prompt), scorer, extract, dict.fromkeys(names, column), ties)
