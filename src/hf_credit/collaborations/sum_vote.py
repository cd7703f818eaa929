"""A vote for a micro policy: three add two numbers, and the third starts with a stock wrong answer.

Every value of every coalition can be enumerated (`hf_credit.collaborations.exact_coalitions`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from hf_credit.collaborations.base import CollaborationState
from hf_credit.collaborations.number_tasks import NumberTasks, of_split, refuse_quality
from hf_credit.collaborations.voting import Voting
from hf_credit.environments.tasks import Split
from hf_credit.registry import remembers_its_call
from hf_credit.rollouts import Request
from hf_credit.rollouts.scripts import Script
from hf_credit.validators import whole_number

LAZY = "third"
STOCK = "0"
"""What the third voter says, whatever it is asked."""
_RIGHT_ANYWAY = 0.15  # how often the third one adds after all


@remembers_its_call("sum_vote")
def sum_vote(size: int = 6, ties: str = "expected") -> Voting:
    """The collaboration: the answer is (one + other) mod `size`, and an answer is worth 1 if it is just that.

    Args:
        size: how many numbers there are, from 3 to 10, so that each is one token of a micro policy. Task rows must be
            made for the same size.
        ties: as for `hf_credit.collaborations.voting.voting`.

    Raises:
        ValueError: `size` is out of range, or `ties` is unknown.
    """
    return _SumVote(size, ties)


class _SumVote(NumberTasks, Voting):
    """The vote, with tasks and players of its own."""

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
    """The vote of a reply that is one number and nothing else."""
    return text if text.isdecimal() and text.isascii() else None


def sum_score(task: Mapping[str, Any], text: str) -> float:
    """1 if `text` is the answer and nothing else, 0 otherwise."""
    return float(text == task["answer"])


def sum_pairs(split: Split, size: int = 6) -> list[tuple[int, ...]]:
    """Every (one, other) of a split: held out are those with (2 * one + other) mod 5 = 0."""
    return of_split(split, itertools.product(range(size), repeat=2))


def sum_task(one: int, other: int, size: int = 6) -> dict[str, str]:
    """The task row of a pair: `problem` for all, `answer` for the scorer."""
    return {"problem": f"{one} and {other}", "answer": str((one + other) % size)}


def stock_player(quality: float, size: int = 6) -> Script:
    """A player of all roles, to warm a policy up on.

    The first two say the sum with probability `quality` and any number otherwise. The third says a stock number, and
    the sum only 15 times in a hundred.

    Args:
        quality: in [0, 1].
        size: as in `sum_vote`.

    Raises:
        ValueError: `quality` is outside [0, 1].
    """
    refuse_quality(quality)

    def play(state: CollaborationState, request: Request, draws: random.Random) -> str:
        answer = str(state.row["answer"])
        if request.role == LAZY:
            return answer if draws.random() < _RIGHT_ANYWAY else STOCK
        return answer if draws.random() < quality else str(draws.randrange(size))

    return play
