"""A vote of K agents: the parallel topology of the paper CCPO (sections 3 and 4.1, Appendix B.3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from hf_credit.collaborations.base import Collaboration, CollaborationState
from hf_credit.collaborations.graph import Event
from hf_credit.collaborations.scorers import Scorer, check_score
from hf_credit.collaborations.votes import plurality, require_ties, vote_score
from hf_credit.registry import find, remembers_its_call

Extractor = Callable[[str], str | None]
"""The answer of a reply in a canonical form, so that equal answers are equal texts; `None` where it has none."""

VOTER_PROMPT = (
    "Solve the problem step by step. Put the final answer, or the letter of the right option, into \\boxed{}."
)
"""Ours; the paper shows none."""


@dataclass(frozen=True, kw_only=True)
class VotingState(CollaborationState):
    """Where a vote stands.

    Attributes:
        ballots: once all have spoken, (role, answer) of each, in their order; `None` abstains.
        grades: the score of each answer that was given, in the order of the first voters.
        asked: how many scores the last step took.
    """

    ballots: tuple[tuple[str, str | None], ...] = ()
    grades: tuple[tuple[str, float], ...] = ()
    asked: int = 0

    @classmethod
    def from_json(cls, text: str) -> Self:
        state, values = super().from_json(text), json.loads(text)
        return replace(
            state,
            ballots=tuple((role, answer) for role, answer in values["ballots"]),
            grades=tuple((answer, score) for answer, score in values["grades"]),
            asked=values["asked"],
        )


class Voting(Collaboration):
    """All see the problem alone and answer at once; the answer with the most votes is the team's.

    A reply without a readable answer abstains. Each distinct answer is scored once, by the first reply that gives it,
    when all have spoken. What the vote is worth without somebody is then arithmetic: nobody speaks again and nothing
    is scored again.

    Args:
        roles: the system prompt of each voter, in their order.
        scorer: given the task row and a reply, says what its answer is worth, in [0, 1].
        extract: given a reply, gives its answer in a canonical form, or `None`.
        ties: what a tie is worth, as in `hf_credit.collaborations.votes.vote_score`.
        columns: the column of the task row that each sees as the problem.

    Raises:
        ValueError: `ties` is unknown, nobody votes, the scorer wants the transcript, or as for `Collaboration`.
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
        require_ties(ties)
        if not roles:
            raise ValueError("somebody must vote, got no voter; name one or more.")
        events = [Event(name, role=name, column=columns[name]) for name in roles]
        super().__init__(roles=roles, events=events, final=tuple(roles), scorer=scorer)
        if self._scores_transcript:
            raise ValueError(
                "the scorer of a vote must be a function of a task and a text, got one with a transcript; answers are "
                "scored once, whoever is left out: pass score(task, text)."
            )
        self.extract: Extractor = find("function", {}, extract) if isinstance(extract, str) else extract
        self.ties = ties

    @property
    def removable(self) -> tuple[str, ...]:
        return tuple(self.roles) if len(self.roles) > 1 else ()

    def show(self, problem: str, heard: Sequence[tuple[str, str]]) -> str:
        return problem

    def start(self, task: Mapping[str, Any], seed: int) -> VotingState:
        state = super().start(task, seed)
        return VotingState(task=state.task, loops=state.loops)

    def advance(self, state: CollaborationState, replies: Sequence[str]) -> VotingState:
        after = super().advance(state, replies)
        assert isinstance(after, VotingState)
        ballots = tuple((role, self.answer(reply)) for role, reply in after.transcript)
        row, grades = after.row, dict[str, float]()
        for (_, answer), (_, reply) in zip(ballots, after.transcript, strict=True):
            if answer is not None and answer not in grades:
                grades[answer] = check_score(self.scorer(row, reply), self.scorer)
        return replace(after, ballots=ballots, grades=tuple(grades.items()), asked=len(grades))

    def answer(self, reply: str) -> str | None:
        """The vote of a reply.

        Raises:
            ValueError: the extractor gave something else than a text or `None`.
        """
        found = self.extract(reply)
        if not isinstance(found, str | None):
            name = getattr(self.extract, "__qualname__", type(self.extract).__name__)
            raise ValueError(
                f"an extractor must give a text or None, got {repr(found)[:100]} from {name}; mend the extractor."
            )
        return found or None

    def without(self, state: CollaborationState, role: str) -> VotingState:
        left = super().without(state, role)
        assert isinstance(left, VotingState)
        return replace(left, ballots=tuple(one for one in left.ballots if one[0] != role), asked=0)

    def outcome(self, state: CollaborationState) -> float:
        """What the vote is worth, 0 before it."""
        assert isinstance(state, VotingState)
        return vote_score([answer for _, answer in state.ballots], dict(state.grades), self.ties)

    def scores(self, state: CollaborationState) -> int:
        assert isinstance(state, VotingState)
        return state.asked

    def metrics(self, state: CollaborationState) -> Mapping[str, float]:
        """Whether the vote was tied, the share that abstained, and what each voter's own answer was worth."""
        assert isinstance(state, VotingState)
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
    """The collaboration.

    With one policy for all (no `role_adapters`) it is self-consistency, maj@K: K samples at one prompt, and a vote.

    Args:
        scorer: given the task row and a reply, says what its answer is worth, in [0, 1]: a function, or the
            `"package.module:function"` of one.
        extract: the vote of a reply, named like a scorer: `"hf_credit.verifiers.options:option_key"` for letters,
            `"hf_credit.verifiers.options:answer_key"` for mathematics.
        voters: how many, then called `voter_1` and so on, or their names.
        ties: `"expected"`, the mean score of the tied answers, which treats all voters alike; `"first"`, the answer
            of the first of them; `"none"`, worth 0.
        column: the column of the task row that all see as the problem.
        prompt: the system prompt of all.

    Raises:
        ValueError: nobody votes, a name occurs twice, `ties` is unknown, or the scorer or the extractor is none.
    """
    names = tuple(f"voter_{place + 1}" for place in range(voters)) if isinstance(voters, int) else tuple(voters)
    if len(set(names)) < len(names):
        raise ValueError(f"voters must have names of their own, got {', '.join(names)}; rename one.")
    return Voting(dict.fromkeys(names, prompt), scorer, extract, dict.fromkeys(names, column), ties)
