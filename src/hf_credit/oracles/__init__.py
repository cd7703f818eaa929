"""Oracles judge any action in any state: by search, constraints, an exact posterior, or the remaining hypotheses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hf_credit.environments import Environment
from hf_credit.oracles.base import Judge, Move, Oracle, ValidSetOracle, first_move
from hf_credit.registry import Registry

__all__ = [
    "ORACLES", "Judge", "Move", "Oracle", "OracleLike", "ValidSetOracle", "default_oracle", "known", "make",
    "require_fit", "resolve", "spec",
]  # fmt: skip

OracleLike = Oracle[Any] | str | Mapping[str, Any]
"""The argument of `resolve`: an oracle, its name, or a mapping of its `name` and `options`."""

ORACLES = {
    "continuations": "hf_credit.policies.continuations:ContinuationsJudge",
    "evidence": "hf_credit.oracles.evidence_play:EvidenceOracle",
    "evidence_hacker": "hf_credit.oracles.evidence_play:EvidenceHacker",
    "hypotheses": "hf_credit.oracles.hypotheses:HypothesesOracle",
    "judge": "hf_credit.oracles.judge_model:JudgeModel",
    "log_ratio": "hf_credit.policies.log_ratio:LogRatioJudge",
    "mcts": "hf_credit.oracles.mcts:MCTSOracle",
    "minesweeper_posterior": "hf_credit.oracles.minesweeper_posterior:MinesweeperPosteriorOracle",
    "sokoban_search": "hf_credit.oracles.sokoban_search:SokobanSearchOracle",
    "sudoku_constraints": "hf_credit.oracles.sudoku_constraints:SudokuConstraintsOracle",
}

# In Tic-Tac-Toe, search proves the value of every move.
_DEFAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    **dict.fromkeys(("circuit_decoding", "guess_numbers", "situation_puzzles"), ("hypotheses", {})),
    **dict.fromkeys(("movie_recommendation", "preference_estimation"), ("hypotheses", {})),
    "evidence": ("evidence", {}),
    "minesweeper": ("minesweeper_posterior", {}),
    "sokoban": ("sokoban_search", {}),
    "sudoku": ("sudoku_constraints", {}),
    "tic_tac_toe": ("mcts", {"simulations": 10_000, "solve": True}),
}


NAMED = Registry[Oracle[Any]]("oracle", ORACLES, Oracle, "give it valid_actions and score.")
make, known, resolve, spec = NAMED.make, NAMED.known, NAMED.resolve, NAMED.spec


def default_oracle(environment: Environment[Any]) -> Oracle[Any] | None:
    """Returns the paper's oracle for each of its environments, with the most accurate options.

    For any other environment it returns the result of the environment's method `default_oracle()`, or `None`.
    """
    if not getattr(environment, "hypotheses_known", True):
        return None
    if environment.name not in _DEFAULTS:
        return getattr(environment, "default_oracle", lambda: None)()
    name, options = _DEFAULTS[environment.name]
    return make(name, **options)


def require_fit(oracle: Oracle[Any], environment: Environment[Any]) -> None:
    """Refuses an oracle that cannot judge the first legal action of one task of an environment.

    Raises:
        ValueError: it is not an oracle, is made for another environment, fails on the environment's first state, or
            scores outside [0, 1].
    """
    name, state, action = first_move("oracle", NAMED.accepted(oracle), environment)
    try:
        score = float(oracle.score(state, action))
    except Exception as error:
        raise ValueError(
            f"the oracle must score every legal action of {environment.name!r}, got {type(error).__name__} from "
            f"{name!r} on {action!r} ({error}); choose another oracle or correct this one."
        ) from error
    if not 0 <= score <= 1:
        raise ValueError(f"an oracle's score must be in [0, 1], got {score} from {name!r} on {action!r}; scale it.")
