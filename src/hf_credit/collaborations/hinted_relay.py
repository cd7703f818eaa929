"""Think and solve for a micro policy, whose exact values can be enumerated: only the lazy thinker knows the secret."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from hf_credit.collaborations.base import CollaborationState
from hf_credit.collaborations.relay import NumberTasks, of_split
from hf_credit.collaborations.relay import relay_score as hinted_relay_score
from hf_credit.collaborations.think_solve import ThinkSolve
from hf_credit.environments.tasks import Split
from hf_credit.registry import remembers_its_call
from hf_credit.rollouts import Request
from hf_credit.rollouts.scripts import Script
from hf_credit.validators import finite_number, whole_number

STOCK = "0"
"""The message of a lazy thinker."""
_SILENT = 0.2  # share of a lazy thinker's empty messages, from which the solver learns problems without notes


@remembers_its_call("hinted_relay")
def hinted_relay(size: int = 8) -> HintedRelay:
    """Returns the collaboration, which scores 1 if the solver's whole output is the secret, 0 otherwise.

    The solver sees the secret and a decoy in ascending order, so alone it succeeds at best half of the time.

    Args:
        size: number of different numbers, from 3 to 10, so that each is one token of a micro policy. Task rows must
            have the same size.

    Raises:
        ValueError: `size` is out of range.
    """
    return HintedRelay(size)


class HintedRelay(NumberTasks, ThinkSolve):
    """The hinted relay, with its tasks and its scripted player.

    Each task has a secret and a decoy; held out are those with (2 * secret + decoy) mod 5 = 0. A row has `problem` for
    the thinker, `question` for the solver, and `answer` for the scorer.
    """

    stream_name = "hinted"

    def __init__(self, size: int) -> None:
        self.size = whole_number("size", size, 3, 10)
        columns = {"thinker": "problem", "solver": "question"}
        super().__init__({"thinker": "tell", "solver": "answer"}, hinted_relay_score, columns)

    def numbers(self, split: Split) -> Sequence[tuple[int, ...]]:
        return of_split(split, itertools.permutations(range(self.size), 2))

    def row(self, numbers: tuple[int, ...]) -> dict[str, str]:
        low, high = sorted(numbers)
        return {"problem": f"secret {numbers[0]}", "question": f"{low} or {high}", "answer": str(numbers[0])}

    def scripted_player(self, quality: float) -> Script:
        """Returns a player of both roles for the warm-up of a policy: a lazy team that better messages can improve.

        The thinker sends the secret with probability `quality`, otherwise a stock number, or nothing with probability
        0.2. The solver repeats a note with one of its two numbers with probability `quality`, otherwise it draws one
        of them.
        """
        finite_number("quality", quality, 0, most=1)

        def play(state: CollaborationState, request: Request, draws: random.Random) -> str:
            diligent = draws.random() < quality
            if request.event == "thinker":
                if diligent:
                    return str(state.row["answer"])
                return "" if draws.random() < _SILENT else STOCK
            candidates = state.row["question"].split(" or ")
            note = dict(state.transcript).get("thinker", "")
            return note if diligent and note in candidates else draws.choice(candidates)

        return play
