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
def sum_vote(size: int = 6, ties: str = "expected") -> Voting:
    """Returns the collaboration, in which an answer scores 1 if it is (one + other) mod `size`, 0 otherwise.

    Args:
        size: number of different numbers, from 3 to 10, so that each is one token of a micro policy. Task rows must
            have the same size.
        ties: as for `hf_credit.collaborations.voting.voting`.

    Raises:
        ValueError: `size` is out of range, or `ties` is unknown.
    """
    return _SumVote(size, ties)


class _SumVote(NumberTasks, Voting):
    """The vote, with its tasks and its scripted player."""

    stream_name = "sum"

    def __init__(self, size: int, ties: str) -> None:
        self.size = whole_number("size", size, 3, 10)
        names = ("first", "second", LAZY)
        columns = dict.fromkeys(names, "problem")
        super().__init__({name: f"{name} voter" for name in names}, sum_score, number_key, columns, ties)

    def numbers(self, split: Split) -> Sequence[tuple[int, ...]]:
        return sum_pairs(split, self.size)

    def row(self, numbers: tuple[int, ...]) -> dict[str, str]:
        one, other = numbers
        return sum_task(one, other, self.size)

    def scripted_player(self, quality: float) -> Script:
        return stock_player(quality, self.size)


def number_key(text: str) -> str | None:
    """Returns the vote of a reply that consists only of a number."""
    return text if text.isdecimal() and text.isascii() else None


def sum_pairs(split: Split, size: int = 6) -> list[tuple[int, ...]]:
    """Returns every (one, other) of a split; held out are those with (2 * one + other) mod 5 = 0."""
    return of_split(split, itertools.product(range(size), repeat=2))


def sum_task(one: int, other: int, size: int = 6) -> dict[str, str]:
    """Returns the task row of a pair: `problem` for the voters, `answer` for the scorer."""
    return {"problem": f"{one} and {other}", "answer": str((one + other) % size)}


def stock_player(quality: float, size: int = 6) -> Script:
    """Returns a player of all roles for the warm-up of a policy.

    The first two voters answer the sum with probability `quality`, otherwise a uniformly drawn number. The third
    answers the sum with probability 0.15, otherwise a stock number.

    Args:
        quality: in [0, 1].
        size: as in `sum_vote`.

    Raises:
        ValueError: `quality` is outside [0, 1].
    """
    finite_number("quality", quality, 0, most=1)

    def play(state: CollaborationState, request: Request, draws: random.Random) -> str:
        answer = str(state.row["answer"])
        if request.role == LAZY:
            return answer if draws.random() < _DILIGENT else STOCK
        return answer if draws.random() < quality else str(draws.randrange(size))

    return play
