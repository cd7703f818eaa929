"""A vote for a micro policy: three add two numbers, and the third starts with a stock wrong answer.

Every value of every coalition can be enumerated (`hf_credit.collaborations.exact_votes`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hf_credit.collaborations.base import CollaborationState
from hf_credit.collaborations.voting import Voting
from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import Split, task_seed
from hf_credit.registry import remembers_its_call
from hf_credit.rollouts import Request
from hf_credit.rollouts.scripts import Script
from hf_credit.validators import whole_number

if TYPE_CHECKING:
    from datasets import Dataset

LAZY = "third"
STOCK = "0"
"""What the third voter says, whatever it is asked."""
_RIGHT_ANYWAY = 0.15  # how often the third one adds after all
_HELD_OUT_EVERY = 5


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


class _SumVote(Voting):
    """The vote, with tasks and players of its own."""

    def __init__(self, size: int, ties: str) -> None:
        self.size = whole_number("size", size, 3, 10)
        names = ("first", "second", LAZY)
        columns = dict.fromkeys(names, "problem")
        super().__init__({name: f"{name} voter" for name in names}, sum_score, number_key, columns, ties)

    def tasks(self, split: Split, size: int, start: int = 0) -> Dataset:
        from datasets import Dataset  # takes a second, which only those who want a data set should wait

        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}; ask for one task or more.")
        pairs = sum_pairs(split, self.size)
        drawn = [stream(task_seed(split, index), "sum").choice(pairs) for index in range(start, start + size)]
        return Dataset.from_list([sum_task(one, other, self.size) for one, other in drawn])

    def scripted_player(self, quality: float) -> Script:
        return stock_player(quality, self.size)


def number_key(text: str) -> str | None:
    """The vote of a reply that is one number and nothing else."""
    return text if text.isdecimal() and text.isascii() else None


def sum_score(task: Mapping[str, Any], text: str) -> float:
    """1 if `text` is the sum and nothing else, 0 otherwise."""
    return float(text == task["answer"])


def sum_pairs(split: Split, size: int = 6) -> list[tuple[int, int]]:
    """Every (one, other) of a split: held out are those with (2 * one + other) mod 5 = 0."""
    task_seed(split, 0)  # refuses what is no split
    held_out = split == "held_out"
    pairs = [(one, other) for one in range(size) for other in range(size)]
    return [pair for pair in pairs if ((2 * pair[0] + pair[1]) % _HELD_OUT_EVERY == 0) == held_out]


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
    if not 0 <= quality <= 1:
        raise ValueError(f"quality must be in [0, 1], got {quality}; 1 always plays right.")

    def play(state: CollaborationState, request: Request, draws: random.Random) -> str:
        answer = str(state.row["answer"])
        if request.role == LAZY:
            return answer if draws.random() < _RIGHT_ANYWAY else STOCK
        return answer if draws.random() < quality else str(draws.randrange(size))

    return play
