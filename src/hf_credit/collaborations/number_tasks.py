"""Tasks of the collaborations for micro policies: tuples of numbers, in disjoint splits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import Split, task_seed
from hf_credit.validators import whole_number

if TYPE_CHECKING:
    from datasets import Dataset

_HELD_OUT_EVERY = 5


def of_split(split: Split, possible: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Returns the tuples of a split; held out are those with (2 * the first + the sum of the others) mod 5 = 0.

    Raises:
        ValueError: the split does not exist.
    """
    task_seed(split, 0)  # refuses an unknown split
    held_out = split == "held_out"
    return [numbers for numbers in possible if ((numbers[0] + sum(numbers)) % _HELD_OUT_EVERY == 0) == held_out]


class NumberTasks(ABC):
    """A collaboration with its own tasks: each has a tuple of numbers, drawn uniformly from those of a split."""

    stream_name: ClassVar[str]

    @abstractmethod
    def numbers(self, split: Split) -> Sequence[tuple[int, ...]]:
        """Returns all tuples of a split."""

    @abstractmethod
    def row(self, numbers: tuple[int, ...]) -> dict[str, str]:
        """Returns the task row of a tuple."""

    def tasks(self, split: Split, size: int, start: int = 0) -> Dataset:
        """Returns rows `start` to `start + size - 1` of a split; a row is the same in every call.

        Raises:
            ValueError: the split does not exist, or `size` is below 1.
        """
        from datasets import Dataset  # a slow import

        indices = range(start, start + whole_number("the number of rows", size, 1))
        possible = self.numbers(split)
        draws = (stream(task_seed(split, index), self.stream_name).choice(possible) for index in indices)
        return Dataset.from_list([self.row(numbers) for numbers in draws])
