"""Games in which the agent asks queries before it answers: the active reasoning of paper T3 (Appendix C.1)."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeVar

from hf_credit.environments.base import Environment, State, Transition
from hf_credit.options import Options
from hf_credit.replies import spoken

INTERACT, ANSWER = "interact", "answer"

_ACT = re.compile(r"<(interact|answer)>((?:(?!</?(?:interact|answer)>).)*)</\1>", re.DOTALL)

FORMAT = (
    "A reply queries with <interact>...</interact> or answers with <answer>...</answer>; the first of these counts, "
    "an answer ends the game, and a reply with neither loses."
)


@dataclass(frozen=True, kw_only=True)
class QueryState(State):
    """The state of a game of queries."""

    left: int  # the number of replies left, the answer included
    queries: tuple[str, ...] = ()  # the contents of the queries so far
    answer: str | None = None  # the content of the answer, `None` before it


S = TypeVar("S", bound=QueryState)


def first_act(reply: str) -> str:
    """The plain action of a reply, `interact CONTENT` or `answer CONTENT`; empty if it has none.

    The first of these tags counts that is closed without another of them in between, outside of thoughts. Case is
    kept, white space is collapsed.
    """
    match = _ACT.search(spoken(reply))
    return " ".join((match[1], *match[2].split())) if match else ""


def parse(action: str) -> tuple[str, str] | None:
    """The verb, `"interact"` or `"answer"`, and the content of a plain action or of a reply; `None` of other text."""
    verb, _, content = (first_act(action) or " ".join(action.split())).partition(" ")
    return (verb, content) if verb in (INTERACT, ANSWER) else None


class QueryEnvironment(Options, Environment[S]):
    """The base of paper T3's environments. The reward is that of the answer, 0 without one.

    An episode ends with the answer, with the last of `turns` replies, or with an unreadable reply, which is invalid.
    The first observation holds everything that depends on the task, later ones only the feedback, so an agent needs
    the whole conversation. Subclasses are dataclasses of their options.

    Args:
        turns: the most replies of an episode, the answer included.
        wording: `"paper"` shows the prompts of the paper (Figures 6 to 11) in the first observation, with one sentence
            on the format as instructions; `"brief"` shows short ones, for policies that know the game.

    Raises:
        ValueError: an option is outside its range.
    """

    turns: int
    wording: Literal["paper", "brief"]
    rules: ClassVar[str]  # in brief
    self_contained = False
    reward_range = (0.0, 1.0)

    @property
    def instructions(self) -> str:
        return FORMAT if self.wording == "paper" else f"{self.rules} {FORMAT}"

    @property
    def max_turns(self) -> int:
        return self.turns

    def read_action(self, reply: str) -> str:
        return first_act(reply)

    def write_action(self, action: str) -> str:
        verb, _, content = action.partition(" ")
        return f"<{verb}>{content}</{verb}>"

    def observe(self, state: S) -> str:
        """The task before any query, afterwards only the feedback on the last query."""
        if state.status == "invalid":
            return "That is no valid query or answer."
        if state.status == "finished":
            return "The game is over."
        return self._feedback(state) if state.queries else self._opening(state)

    def answer_prompt(self, state: S) -> str:
        return "Now give your final answer inside <answer> and </answer>."

    def force_answer(self, state: S) -> S:
        return replace(state, left=1)

    def step(self, state: S, action: str) -> Transition[S]:
        if state.status != "active":
            return self._transition(state, 0.0, None)
        verb, content = parse(action) or ("", "")
        after: S | None = None
        if verb == INTERACT and (asked := self._asked(state, content)) is not None:
            after = self._spent(asked)
        elif verb == ANSWER and (answer := self._read_answer(state, content)) is not None:
            after = replace(state, left=state.left - 1, answer=answer, status="finished")
        if after is None:
            return self._transition(replace(state, status="invalid"), 0.0, None)
        return self._transition(after, self.outcome(after), f"{verb} {content}".rstrip())

    def outcome(self, state: S) -> float:
        return 0.0 if state.answer is None else self._reward(state, state.answer)

    def metrics(self, state: S) -> dict[str, float]:
        """`success`: whether the answer is right; `answered`: whether it was given; `queries`: their number."""
        return {
            "success": float(self.outcome(state) == 1),
            "answered": float(state.answer is not None),
            "queries": float(len(state.queries)),
        }

    def _spent(self, state: S) -> S:
        left = state.left - 1
        return replace(state, left=left, status="active" if left else "finished")

    @abstractmethod
    def _opening(self, state: S) -> str:
        """The first observation."""

    @abstractmethod
    def _feedback(self, state: S) -> str:
        """The feedback on the last query."""

    @abstractmethod
    def _asked(self, state: S, content: str) -> S | None:
        """The state with one more query, before `_spent`; `None` if the query cannot be read."""

    @abstractmethod
    def _read_answer(self, state: S, content: str) -> str | None:
        """An answer in its normal form, `None` if it cannot be read."""

    @abstractmethod
    def _reward(self, state: S, answer: str) -> float:
        """The reward of an answer, in [0, 1]."""
