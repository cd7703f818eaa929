"""A vote for a micro policy, whose coalitions have exact values: three voters add numbers, the third is lazy."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from hf_credit.collaborations.base import CollaborationState
from hf_credit.collaborations.relay import NumberTasks, of_split
from hf_credit.collaborations.relay import relay_score as sum_score
from hf_credit.collaborations.voting import Voting
from hf_credit.environments.tasks import Split
from hf_credit.registry import remembers_its_call
from hf_credit.rollouts import Request
from hf_credit.rollouts.scripts import Script
from hf_credit.validators import finite_number, whole_number

LAZY = "third"
STOCK = "0"
"""The stock answer of the third voter."""
_DILIGENT = 0.15  # the third voter's probability of the right answer


@remembers_its_call("sum_vote")
def sum_vote(size: int = 6, ties: str = "expected") -> SumVote:
    """Returns the collaboration, in which an answer scores 1 if it is (one + other) mod `size`, 0 otherwise.

    Args:
        size: number of different numbers, from 3 to 10, so that each is one token of a micro policy. Task rows must
            have the same size.
        ties: as for `hf_credit.collaborations.voting.voting`.

    Raises:
        ValueError: `size` is out of range, or `ties` is unknown.
    """
    return SumVote(size, ties)


class SumVote(NumberTasks, Voting):
    """The vote, with its tasks and its scripted player.

    Each task has two numbers, one and other; held out are those with (2 * one + other) mod 5 = 0. A row has `problem`
    for the voters, and `answer` for the scorer.
    """

    stream_name = "sum"

    def __init__(self, size: int, ties: str) -> None:
        self.size = whole_number("size", size, 3, 10)
        names = ("first", "second", LAZY)
        columns = dict.fromkeys(names, "problem")
        super().__init__({name: f"{name} voter" for name in names}, sum_score, number_key, columns, ties)

    def numbers(self, split: Split) -> Sequence[tuple[int, ...]]:
        return of_split(split, itertools.product(range(self.size), repeat=2))

    def row(self, numbers: tuple[int, ...]) -> dict[str, str]:
        first, second = numbers
        return {"problem": f"{first} and {second}", "answer": str((first + second) % self.size)}

    def scripted_player(self, quality: float) -> Script:
        """Returns a player of all roles for the warm-up of a policy.

        The first two voters answer the sum with probability `quality`, otherwise a uniformly drawn number. The third
        answers the sum with probability 0.15, otherwise a stock number.
        """
        finite_number("quality", quality, 0, most=1)

        def play(state: CollaborationState, request: Request, draws: random.Random) -> str:
            answer = str(state.row["answer"])
            if request.role == LAZY:
                return answer if draws.random() < _DILIGENT else STOCK
            return answer if draws.random() < quality else str(draws.randrange(self.size))

        return play


def number_key(text: str) -> str | None:
    """Returns the vote of a reply that consists only of a number."""
    return text if text.isdecimal() and text.isascii() else None
