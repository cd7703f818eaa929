"""Think and solve for a micro policy: the solver is half-blind, and the thinker starts lazy.

The thinker alone sees a secret number. The solver sees it beside a decoy, in order, and does not know which is which:
alone it is right half of the time at best, with the thinker's message always. Every value can be enumerated
(`hf_credit.collaborations.exact_values`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hf_credit.collaborations.base import CollaborationState
from hf_credit.collaborations.think_solve import ThinkSolve
from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import Split, task_seed
from hf_credit.registry import remembers_its_call
from hf_credit.rollouts import Request
from hf_credit.rollouts.scripts import Script
from hf_credit.validators import whole_number

if TYPE_CHECKING:
    from datasets import Dataset

STOCK = "0"
"""What a lazy thinker says."""
_SILENT = 0.2  # of the times that it is lazy; the solver so learns how a problem without notes reads
_HELD_OUT_EVERY = 5


@remembers_its_call("hinted_relay")
def hinted_relay(size: int = 8) -> ThinkSolve:
    """The collaboration: the score is 1 if the solver says the secret and nothing else.

    Args:
        size: how many numbers there are, from 3 to 10, so that each is one token of a micro policy. Task rows must be
            made for the same size.

    Raises:
        ValueError: `size` is out of range.
    """
    return _HintedRelay(size)


class _HintedRelay(ThinkSolve):
    """The hinted relay, with tasks and players of its own."""

    def __init__(self, size: int) -> None:
        self.size = whole_number("size", size, 3, 10)
        columns = {"thinker": "problem", "solver": "question"}
        super().__init__({"thinker": "tell", "solver": "answer"}, hinted_relay_score, columns)

    def tasks(self, split: Split, size: int, start: int = 0) -> Dataset:
        from datasets import Dataset  # takes a second, which only those who want a data set should wait

        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}; ask for one task or more.")
        pairs = hinted_relay_pairs(split, self.size)
        drawn = [stream(task_seed(split, index), "hinted").choice(pairs) for index in range(start, start + size)]
        return Dataset.from_list([hinted_relay_task(secret, decoy) for secret, decoy in drawn])

    def scripted_player(self, quality: float) -> Script:
        return lazy_player(quality)


def hinted_relay_score(task: Mapping[str, Any], text: str) -> float:
    """1 if `text` is the secret and nothing else, 0 otherwise."""
    return float(text == task["answer"])


def hinted_relay_pairs(split: Split, size: int = 8) -> list[tuple[int, int]]:
    """Every (secret, decoy) of a split: held out are those with (2 * secret + decoy) mod 5 = 0."""
    task_seed(split, 0)  # refuses what is no split
    held_out = split == "held_out"
    pairs = [(secret, decoy) for secret in range(size) for decoy in range(size) if secret != decoy]
    return [pair for pair in pairs if ((2 * pair[0] + pair[1]) % _HELD_OUT_EVERY == 0) == held_out]


def hinted_relay_task(secret: int, decoy: int) -> dict[str, str]:
    """The task row of a pair: `problem` for the thinker, `question` for the solver, `answer` for the scorer."""
    one, other = sorted((secret, decoy))
    return {"problem": f"secret {secret}", "question": f"{one} or {other}", "answer": str(secret)}


def lazy_player(quality: float) -> Script:
    """A player of both roles, to warm a policy up on: a lazy team that the thinker's message can save.

    The thinker tells the secret with probability `quality`; otherwise it says a stock number, or one time in five
    nothing at all. The solver heeds a note that names one of its two numbers with probability `quality`; otherwise it
    picks one of the two by chance.

    Args:
        quality: in [0, 1].

    Raises:
        ValueError: `quality` is outside [0, 1].
    """
    if not 0 <= quality <= 1:
        raise ValueError(f"quality must be in [0, 1], got {quality}; 1 always plays right.")

    def play(state: CollaborationState, request: Request, draws: random.Random) -> str:
        diligent = draws.random() < quality
        if request.event == "thinker":
            if diligent:
                return str(state.row["answer"])
            return "" if draws.random() < _SILENT else STOCK
        candidates = state.row["question"].split(" or ")
        noted = dict(state.transcript).get("thinker", "")
        return noted if diligent and noted in candidates else draws.choice(candidates)

    return play
