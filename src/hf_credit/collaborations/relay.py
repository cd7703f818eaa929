"""A task that a micro policy learns, in which one speaker's message decides what the others can achieve.

The reasoner alone sees a secret number, the actor alone sees what to add to it. In a chain, speakers in between add a
number of their own, so that what the first says is worth something only as far as all the others play on. The best
score is 1, and what any message is worth can be computed (`hf_credit.collaborations.exact_values`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hf_credit.collaborations.base import Collaboration, CollaborationState
from hf_credit.collaborations.graph import Event
from hf_credit.collaborations.number_tasks import NumberTasks, of_split, refuse_quality
from hf_credit.environments.tasks import Split
from hf_credit.registry import remembers_its_call
from hf_credit.rollouts import Request
from hf_credit.rollouts.scripts import Script
from hf_credit.validators import whole_number

if TYPE_CHECKING:
    from datasets import Dataset

_SPEAKERS = range(2, 7)
_MOST_TASKS = 10**6


@remembers_its_call("relay")
def relay(size: int = 10, speakers: int = 2) -> Collaboration:
    """The collaboration: the answer is (secret + shifts) mod `size`, and the score is 1 if the actor says just that.

    The reasoner sees the secret; every other speaker sees its own shift and what the one before it said. The events
    are `reasoner`, `speaker2`, `speaker3` and so on, and `actor`, each a role of its own. All see short prompts, so a
    context is about 20 tokens of a micro policy. Up to a size of 10 a number is one of its tokens, so a reply needs
    two with its end.

    Args:
        size: how many numbers there are, at least 2. Task rows must be made for the same size.
        speakers: how long the chain is, from 2, the reasoner and the actor, to 6. Task rows must be made for as many,
            and there are a million tasks at most: `size ** speakers`.

    Raises:
        ValueError: `size` is below 2, `speakers` is out of range, or there are more tasks.
    """
    return _Relay(size, speakers)


class _Relay(NumberTasks, Collaboration):
    """The relay, with tasks and a player of its own."""

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
        return relay_chain_task(numbers, self.size)

    def scripted_player(self, quality: float) -> Script:
        return relay_player(quality, self.size)


def relay_events(speakers: int = 2) -> list[str]:
    """The events in the order in which they speak: `reasoner`, `speaker2` to `speaker5` as far as needed, `actor`."""
    return ["reasoner", *(f"speaker{place}" for place in range(2, speakers)), "actor"]


def relay_score(task: Mapping[str, Any], text: str) -> float:
    """1 if `text` is the answer and nothing else, 0 otherwise."""
    return float(text == task["answer"])


def relay_tasks(
    split: Split = "train", rows: int = 1024, size: int = 10, start: int = 0, speakers: int = 2
) -> Dataset:
    """Task rows: the columns `problem` (for the reasoner), `question` (for the actor) and `answer` (for the scorer),
    and `question_speaker2` and so on for those in between.

    A row is a secret and a shift for every further speaker, drawn uniformly from those of its split. Held out are
    those with (2 * secret + sum of the shifts) mod 5 = 0, about one in five: no training row has one of them, while
    for sizes of 5 or more each secret and each shift occurs in both splits. A training episode can still show the
    actor what it sees of a held-out task, when it was told a wrong number.

    Args:
        split: `"train"` or `"held_out"`.
        rows: how many.
        size, speakers: as in `relay`.
        start: the first row's index; row `i` of a split is the same in every call.

    Raises:
        ValueError: there is no such split, or a number is out of range.
    """
    return _Relay(size, speakers).tasks(split, rows, start)


def relay_pairs(split: Split, size: int = 10) -> list[tuple[int, int]]:
    """Every (secret, shift) of a split, each number in [0, `size`): `relay_numbers` of two speakers."""
    return [(secret, shift) for secret, shift in relay_numbers(split, size)]


@lru_cache(maxsize=4)
def relay_numbers(split: Split, size: int = 10, speakers: int = 2) -> Sequence[tuple[int, ...]]:
    """Every (secret, shift of the second speaker, ..., shift of the actor) of a split, each number in [0, `size`).

    There are `size ** speakers` in both splits together: of ten numbers and six speakers a million.
    """
    _refuse(size, speakers)
    return tuple(of_split(split, itertools.product(range(size), repeat=speakers)))


def relay_task(secret: int, shift: int, size: int = 10) -> dict[str, str]:
    """The task row of a pair."""
    return relay_chain_task((secret, shift), size)


def relay_chain_task(numbers: Sequence[int], size: int = 10) -> dict[str, str]:
    """The task row of a secret and the shifts of all further speakers, in their order."""
    secret, *shifts = numbers
    questions = zip(relay_events(len(numbers))[1:], shifts, strict=True)
    return {
        "problem": f"secret {secret}",
        **{_column(event): f"add {shift}" for event, shift in questions},
        "answer": str(sum(numbers) % size),
    }


def relay_player(quality: float, size: int = 10) -> Script:
    """A player of all roles, to warm a policy up on.

    The reasoner tells the secret with probability `quality`, each other speaker what follows from the number that it
    was told with probability `quality`; otherwise each says a uniformly drawn number. Of n numbers and k speakers the
    success rate is 1/n + (1 - 1/n) * quality^k.

    Args:
        quality: in [0, 1].
        size: as in `relay`.

    Raises:
        ValueError: `quality` is outside [0, 1], or `size` is below 2.
    """
    _refuse(size)
    refuse_quality(quality)

    def play(state: CollaborationState, request: Request, draws: random.Random) -> str:
        if draws.random() >= quality:
            return str(draws.randrange(size))
        own = _number(state.row[_column(request.event)])
        if not state.transcript:
            return own
        _, told = state.transcript[-1]
        return str((int(told) + int(own)) % size)

    return play


def _column(event: str) -> str:
    """Of the task row, what an event shows."""
    return {"reasoner": "problem", "actor": "question"}.get(event, f"question_{event}")


def _number(text: str) -> str:
    return text.rpartition(" ")[2]


def _refuse(size: int, speakers: int = 2) -> None:
    whole_number("size", size, 2)
    whole_number("speakers", speakers, _SPEAKERS[0], _SPEAKERS[-1])
    if size**speakers > _MOST_TASKS:
        raise ValueError(
            f"size ** speakers must be at most {_MOST_TASKS}, since all tasks are listed, got {size} ** {speakers}; "
            "lower one."
        )
