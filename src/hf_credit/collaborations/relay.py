"""A relay of numbers for micro policies, whose exact values can be enumerated: each speaker adds its own number."""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from hf_credit.collaborations.base import Collaboration, CollaborationState
from hf_credit.collaborations.graph import Event
from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import Split, task_seed
from hf_credit.registry import remembers_its_call
from hf_credit.rollouts import Request
from hf_credit.rollouts.scripts import Script
from hf_credit.validators import finite_number, whole_number

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


_SPEAKERS = range(2, 7)
_MAX_TASKS = 10**6


@remembers_its_call("relay")
def relay(size: int = 10, speakers: int = 2) -> Relay:
    """Returns the collaboration, which scores 1 if the actor's output is (secret + shifts) mod `size`, 0 otherwise.

    The reasoner sees the secret; every other speaker sees its own shift and the previous speaker's output. The events
    are `reasoner`, `speaker2`, `speaker3` and so on, and `actor`, each with its own role. Prompts are short: a context
    has about 20 tokens of a micro policy. Up to a size of 10 a number is one token, so a reply has two with its end.

    Args:
        size: number of different numbers, at least 2. Task rows must have the same size.
        speakers: length of the chain, from 2, the reasoner and the actor, to 6. Task rows must have the same length.
            There must be at most a million tasks: `size ** speakers`.

    Raises:
        ValueError: `size` is below 2, `speakers` is out of range, or there are more tasks.
    """
    return Relay(size, speakers)


class Relay(NumberTasks, Collaboration):
    """The relay, with its tasks and its scripted player.

    A row has the columns `problem` (reasoner), `question` (actor), `answer` (scorer), and `question_speaker2` and so
    on for the speakers in between. It has a secret and a shift for every further speaker, drawn uniformly from its
    split. Held out are rows with (2 * secret + sum of the shifts) mod 5 = 0, about one in five. Training rows contain
    none of them, but for sizes of 5 or more each secret and each shift occurs in both splits. After a wrong message,
    the actor of a training episode may still see the context of a held-out task.
    """

    stream_name = "relay"

    def __init__(self, size: int, speakers: int) -> None:
        _refuse(size, speakers)
        self.size = size
        self.speakers = speakers
        events = relay_events(speakers)
        between = {event: f"{event} mod {size}" for event in events[1:-1]}
        super().__init__(
            roles={"reasoner": "tell", **between, "actor": f"answer mod {size}"},
            events=[
                Event("reasoner", role="reasoner", column="problem"),
                *(
                    Event(event, role=event, after=before, column=_column(event))
                    for before, event in itertools.pairwise(events)
                ),
            ],
            final="actor",
            scorer=relay_score,
        )

    def numbers(self, split: Split) -> Sequence[tuple[int, ...]]:
        return relay_numbers(split, self.size, self.speakers)

    def row(self, numbers: tuple[int, ...]) -> dict[str, str]:
        return relay_task(*numbers, size=self.size)

    def scripted_player(self, quality: float) -> Script:
        """Returns a player of all roles for the warm-up of a policy.

        With probability `quality`, the reasoner sends the secret, and each other speaker adds its shift to the number
        that it received; otherwise each sends a uniformly drawn number. With n numbers and k speakers, the success
        rate is 1/n + (1 - 1/n) * quality^k.
        """
        finite_number("quality", quality, 0, most=1)

        def play(state: CollaborationState, request: Request, draws: random.Random) -> str:
            if draws.random() >= quality:
                return str(draws.randrange(self.size))
            number = state.row[_column(request.event)].rpartition(" ")[2]
            if not state.transcript:
                return str(number)
            _, received = state.transcript[-1]
            return str((int(received) + int(number)) % self.size)

        return play


def relay_events(speakers: int = 2) -> list[str]:
    """Returns the events in order: `reasoner`, `speaker2` to `speaker5` as needed, `actor`."""
    return ["reasoner", *(f"speaker{number}" for number in range(2, speakers)), "actor"]


def relay_score(task: Mapping[str, Any], text: str) -> float:
    """Returns 1 if `text` equals the answer, 0 otherwise."""
    return float(text == task["answer"])


@lru_cache(maxsize=4)
def relay_numbers(split: Split, size: int = 10, speakers: int = 2) -> Sequence[tuple[int, ...]]:
    """Returns every (secret, shift of the second speaker, ..., shift of the actor) of a split, each in [0, `size`).

    Both splits together have `size ** speakers`: a million for ten numbers and six speakers.
    """
    _refuse(size, speakers)
    return tuple(of_split(split, itertools.product(range(size), repeat=speakers)))


def relay_task(secret: int, *shifts: int, size: int = 10) -> dict[str, str]:
    """Returns the task row of a secret and the shifts of all further speakers, in order."""
    questions = zip(relay_events(1 + len(shifts))[1:], shifts, strict=True)
    return {
        "problem": f"secret {secret}",
        **{_column(event): f"add {shift}" for event, shift in questions},
        "answer": str(sum((secret, *shifts)) % size),
    }


def _column(event: str) -> str:
    return {"reasoner": "problem", "actor": "question"}.get(event, f"question_{event}")


def _refuse(size: int, speakers: int = 2) -> None:
    whole_number("size", size, 2)
    whole_number("speakers", speakers, _SPEAKERS[0], _SPEAKERS[-1])
    if size**speakers > _MAX_TASKS:
        raise ValueError(
            f"size ** speakers must be at most {_MAX_TASKS}, since all tasks are listed, got {size} ** {speakers}; "
            "lower one."
        )
