"""An oracle that errs at a known rate: an evaluation's tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hf_credit.environments.actions import plain_action
from hf_credit.environments.randomness import stream
from hf_credit.oracles import Oracle


@dataclass(frozen=True)
class Erring:
    """Gives the opposite verdict on each pair of a state and a move with a fixed probability, always the same.

    Args:
        oracle: whose verdicts are 0 or 1.
        error: the probability, in [0, 1].
        seed: of the pairs.
    """

    oracle: Oracle[Any]
    error: float
    seed: int = 0

    def valid_actions(self, state: Any) -> frozenset[str]:
        return self.oracle.valid_actions(state)

    def score(self, state: Any, action: str) -> float:
        score = self.oracle.score(state, action)
        errs = stream(self.seed, "erring", repr(state), plain_action(action)).random() < self.error
        return 1.0 - score if errs else score
