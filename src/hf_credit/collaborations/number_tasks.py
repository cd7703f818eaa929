"""What the collaborations for micro policies share: tasks of a few numbers, of splits that share none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import Split, task_seed
from hf_credit.validators import finite_number, whole_number

if TYPE_CHECKING:
    from datasets import Dataset

_HELD_OUT_EVERY = 5


def of_split(split: Split, possible: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Those of a split: held out are numbers with (2 * the first + the sum of the others) mod 5 = 0.

    Raises:
        ValueError: there is no such split.
    """
    task_seed(split, 0)  # refuses what is no split
    held_out = split == "held_out"
    return [one for one in possible if ((one[0] + sum(one)) % _HELD_OUT_EVERY == 0) == held_out]


def refuse_quality(quality: float) -> None:
    """Refuses a quality of play outside [0, 1].

    Raises:
        ValueError: it is not in there.
    """
    finite_number("quality", quality, 0, most=1)


class NumberTasks(ABC):
    """A collaboration with tasks of its own: the row of numbers that are drawn uniformly from those of a split.

    Class attributes:
        stream_name: names the draws.
    """

    stream_name: ClassVar[str]

    @abstractmethod
    def numbers(self, split: Split) -> Sequence[tuple[int, ...]]:
        """All numbers of a split."""

    @abstractmethod
    def row(self, numbers: tuple[int, ...]) -> dict[str, str]:
        """Their task row."""

    def tasks(self, split: Split, size: int, start: int = 0) -> Dataset:
        """Rows `start` to `start + size - 1` of a split; a row is the same in every call.

        Raises:
            ValueError: there is no such split, or `size` is below 1.
        """
        from datasets import Dataset  # takes a second, which only those who want a data set should wait

        places = range(start, start + whole_number("the number of rows", size, 1))
        possible = self.numbers(split)
        draws = (stream(task_seed(split, place), self.stream_name).choice(possible) for place in places)
        return Dataset.from_list([self.row(numbers) for numbers in draws])
