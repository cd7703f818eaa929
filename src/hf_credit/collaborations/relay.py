"""A task that a micro policy learns, in which one speaker's message decides what the other can achieve.

The reasoner alone sees a secret number, the actor alone sees what to add to it. The best score is 1, and what any
message is worth can be computed (`hf_credit.collaborations.exact_values`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hf_credit.collaborations.base import Collaboration, CollaborationState
from hf_credit.collaborations.graph import Event
from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import Split, task_seed
from hf_credit.registry import remembers_its_call
from hf_credit.rollouts import Request
from hf_credit.rollouts.scripts import Script

if TYPE_CHECKING:
    from datasets import Dataset

_HELD_OUT_EVERY = 5


@remembers_its_call("relay")
def relay(size: int = 10) -> Collaboration:
    """The collaboration: the answer is (secret + shift) mod `size`, and the score is 1 if the actor says just that.

    Both roles see short prompts, so a context is about 20 tokens of a micro policy. Up to a size of 10 a number is one
    of its tokens, so a reply needs two with its end.

    Args:
        size: how many numbers there are, at least 2. Task rows must be made for the same size.

    Raises:
        ValueError: `size` is below 2.
    """
    return _Relay(size)


class _Relay(Collaboration):
    """The relay, with tasks and a player of its own."""

    def __init__(self, size: int) -> None:
        _refuse_size(size)
        self.size = size
        super().__init__(
            roles={"reasoner": "tell", "actor": f"answer mod {size}"},
            events=[
                Event("reasoner", role="reasoner", column="problem"),
                Event("actor", role="actor", after="reasoner", column="question"),
            ],
            final="actor",
            scorer=relay_score,
        )

    def tasks(self, split: Split, size: int, start: int = 0) -> Dataset:
        return relay_tasks(split, size, self.size, start)

    def scripted_player(self, quality: float) -> Script:
        return relay_player(quality, self.size)


def relay_score(task: Mapping[str, Any], text: str) -> float:
    """1 if `text` is the answer and nothing else, 0 otherwise."""
    return float(text == task["answer"])


def relay_tasks(split: Split = "train", rows: int = 1024, size: int = 10, start: int = 0) -> Dataset:
    """Task rows: the columns `problem` (for the reasoner), `question` (for the actor) and `answer` (for the scorer).

    A row is a pair (secret, shift), drawn uniformly from the pairs of its split. Held out are the pairs with
    (2 * secret + shift) mod 5 = 0, about one in five: no training row has one of them, while for sizes of 5 or more
    each secret and each shift occurs in both splits. A training episode can still show the actor a held-out pair, when
    the reasoner tells it a wrong number.

    Args:
        split: `"train"` or `"held_out"`.
        rows: how many.
        size: as in `relay`.
        start: the first row's index; row `i` of a split is the same in every call.

    Raises:
        ValueError: there is no such split, or a number is out of range.
    """
    from datasets import Dataset  # takes a second, which only those who want a data set should wait

    _refuse_size(size)
    if rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}; ask for one task or more.")
    pairs = relay_pairs(split, size)
    drawn = [stream(task_seed(split, index), "relay").choice(pairs) for index in range(start, start + rows)]
    return Dataset.from_list([relay_task(secret, shift, size) for secret, shift in drawn])


def relay_pairs(split: Split, size: int = 10) -> list[tuple[int, int]]:
    """Every (secret, shift) of a split, each number in [0, `size`)."""
    task_seed(split, 0)  # refuses what is no split
    held_out = split == "held_out"
    pairs = [(secret, shift) for secret in range(size) for shift in range(size)]
    return [pair for pair in pairs if ((2 * pair[0] + pair[1]) % _HELD_OUT_EVERY == 0) == held_out]


def relay_task(secret: int, shift: int, size: int = 10) -> dict[str, str]:
    """The task row of a pair."""
    return {"problem": f"secret {secret}", "question": f"add {shift}", "answer": str((secret + shift) % size)}


def relay_player(quality: float, size: int = 10) -> Callable[[CollaborationState, Request, random.Random], str]:
    """A player of both roles, to warm a policy up on.

    The reasoner tells the secret with probability `quality`, the actor answers what follows from the number that it
    was told with probability `quality`; otherwise each says a uniformly drawn number. With n numbers each is right
    with probability r = quality + (1 - quality) / n, and the success rate is r^2 + (1 - r) * (1 - quality) / n.

    Args:
        quality: in [0, 1].
        size: as in `relay`.

    Raises:
        ValueError: `quality` is outside [0, 1], or `size` is below 2.
    """
    _refuse_size(size)
    if not 0 <= quality <= 1:
        raise ValueError(f"quality must be in [0, 1], got {quality}; 1 always plays right.")

    def play(state: CollaborationState, request: Request, draws: random.Random) -> str:
        if draws.random() >= quality:
            return str(draws.randrange(size))
        if request.event == "reasoner":
            return _number(state.row["problem"])
        ((_, told),) = state.transcript
        return str((int(told) + int(_number(state.row["question"]))) % size)

    return play


def _number(text: str) -> str:
    return text.rpartition(" ")[2]


def _refuse_size(size: int) -> None:
    if size < 2:
        raise ValueError(f"size must be at least 2, got {size}; take 10, say.")
