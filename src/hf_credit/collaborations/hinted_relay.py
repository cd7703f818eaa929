"""Think and solve for a micro policy: the solver is half-blind, and the thinker starts lazy.

The thinker alone sees a secret number. The solver sees it beside a decoy, in order, and does not know which is which:
alone it is right half of the time at best, with the thinker's message always. Every value can be enumerated
(`hf_credit.collaborations.exact_values`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from hf_credit.collaborations.base import CollaborationState
from hf_credit.collaborations.number_tasks import NumberTasks, of_split, refuse_quality
from hf_credit.collaborations.think_solve import ThinkSolve
from hf_credit.environments.tasks import Split
from hf_credit.registry import remembers_its_call
from hf_credit.rollouts import Request
from hf_credit.rollouts.scripts import Script
from hf_credit.validators import whole_number

STOCK = "0"
"""What a lazy thinker says."""
_SILENT = 0.2  # of the times that it is lazy; the solver so learns how a problem without notes reads


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


class _HintedRelay(NumberTasks, ThinkSolve):
    """The hinted relay, with tasks and players of its own."""

    stream_name = "hinted"

    def __init__(self, size: int) -> None:
        self.size = whole_number("size", size, 3, 10)
        columns = {"thinker": "problem", "solver": "question"}
        super().__init__({"thinker": "tell", "solver": "answer"}, hinted_relay_score, columns)

    def numbers(self, split: Split) -> Sequence[tuple[int, ...]]:
        return hinted_relay_pairs(split, self.size)

    def row(self, numbers: tuple[int, ...]) -> dict[str, str]:
        secret, decoy = numbers
        return hinted_relay_task(secret, decoy)

    def scripted_player(self, quality: float) -> Script:
        return lazy_player(quality)


def hinted_relay_score(task: Mapping[str, Any], text: str) -> float:
    """1 if `text` is the answer and nothing else, 0 otherwise."""
    return float(text == task["answer"])


def hinted_relay_pairs(split: Split, size: int = 8) -> list[tuple[int, ...]]:
    """Every (secret, decoy) of a split: held out are those with (2 * secret + decoy) mod 5 = 0."""
    return of_split(split, itertools.permutations(range(size), 2))


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
    refuse_quality(quality)

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
