"""Who knows the right move: search, constraints, posterior."""

from __future__ import annotations

from typing import Any

from hf_credit.environments import Environment
from hf_credit.oracles.base import Oracle, ValidSetOracle
from hf_credit.registry import build

__all__ = ["ORACLES", "Oracle", "ValidSetOracle", "default_oracle", "make", "require_fit"]

ORACLES = {
    "mcts": "hf_credit.oracles.mcts:MCTSOracle",
    "minesweeper_posterior": "hf_credit.oracles.minesweeper_posterior:MinesweeperPosteriorOracle",
    "sudoku_constraints": "hf_credit.oracles.sudoku_constraints:SudokuConstraintsOracle",
}

# Tic-Tac-Toe is small enough for search to prove the value of every move.
_OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "minesweeper": ("minesweeper_posterior", {}),
    "sudoku": ("sudoku_constraints", {}),
    "tic_tac_toe": ("mcts", {"simulations": 10_000, "solve": True}),
}


def make(name: str, **options: Any) -> Oracle[Any]:
    """The oracle called `name`, with its options.

    Raises:
        ValueError: the name, an option or an option's value is not possible, in one sentence that names the rule,
            the value and the remedy.
    """
    oracle: Oracle[Any] = build("oracle", ORACLES, name, options)
    return oracle


def default_oracle(environment: Environment[Any]) -> Oracle[Any] | None:
    """The paper's kind of oracle for each of its environments, at its best; `None` for any other environment."""
    if environment.name not in _OWN:
        return None
    name, options = _OWN[environment.name]
    return make(name, **options)


def require_fit(oracle: Oracle[Any], environment: Environment[Any]) -> None:
    """Refuses an oracle that cannot judge an environment, by asking it about the first legal action of one task.

    Raises:
        ValueError: it is no oracle, it is made for another environment, it fails on the environment's first state, or
            its score is outside [0, 1].
    """
    name = getattr(oracle, "name", type(oracle).__name__)
    if not isinstance(oracle, Oracle):
        raise ValueError(f"an oracle must have valid_actions and score, got {name!r} without; add them.")
    made_for = getattr(oracle, "environment_type", object)
    if not isinstance(environment, made_for):
        raise ValueError(
            f"the oracle must be made for the environment {environment.name!r}, got {name!r} for "
            f"{made_for.__name__}; choose another oracle."
        )
    state = environment.initial_state(environment.sample_task(0), 0)
    action = environment.legal_actions(state)[0]
    try:
        score = float(oracle.score(state, action))
    except Exception as error:
        raise ValueError(
            f"the oracle must score every legal action of {environment.name!r}, got {type(error).__name__} from "
            f"{name!r} on {action!r} ({error}); choose another oracle or mend this one."
        ) from error
    if not 0 <= score <= 1:
        raise ValueError(f"an oracle's score must be in [0, 1], got {score} from {name!r} on {action!r}; scale it.")
