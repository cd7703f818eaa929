"""Who knows the right move: search, constraints, posterior, hypotheses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hf_credit.environments import Environment
from hf_credit.oracles.base import Oracle, ValidSetOracle, first_move
from hf_credit.registry import described, find, names, refuse_options, remember

__all__ = [
    "ORACLES",
    "Oracle",
    "OracleLike",
    "ValidSetOracle",
    "default_oracle",
    "known",
    "make",
    "require_fit",
    "resolve",
    "spec",
]

OracleLike = Oracle[Any] | str | Mapping[str, Any]
"""What `resolve` takes: an oracle, its name, or a mapping of its `name` and `options`."""

ORACLES = {
    "evidence": "hf_credit.oracles.evidence_play:EvidenceOracle",
    "evidence_hacker": "hf_credit.oracles.evidence_play:EvidenceHacker",
    "hypotheses": "hf_credit.oracles.hypotheses:HypothesesOracle",
    "mcts": "hf_credit.oracles.mcts:MCTSOracle",
    "minesweeper_posterior": "hf_credit.oracles.minesweeper_posterior:MinesweeperPosteriorOracle",
    "sudoku_constraints": "hf_credit.oracles.sudoku_constraints:SudokuConstraintsOracle",
}

# Tic-Tac-Toe is small enough for search to prove the value of every move.
_OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "circuit_decoding": ("hypotheses", {}),
    "evidence": ("evidence", {}),
    "guess_numbers": ("hypotheses", {}),
    "minesweeper": ("minesweeper_posterior", {}),
    "movie_recommendation": ("hypotheses", {}),
    "preference_estimation": ("hypotheses", {}),
    "situation_puzzles": ("hypotheses", {}),
    "sudoku": ("sudoku_constraints", {}),
    "tic_tac_toe": ("mcts", {"simulations": 10_000, "solve": True}),
}


def make(name: str, **options: Any) -> Oracle[Any]:
    """The oracle called `name`, with its options.

    Args:
        name: one of `known()`, or the `"package.module:Class"` of one, or of a factory, which is imported and must be
            code that you trust.
        **options: of the oracle.

    Raises:
        ValueError: the name, an option or an option's value is not possible, in one sentence that names the rule,
            the value and the remedy.
    """
    factory = find("oracle", ORACLES, name)
    refuse_options("oracle", factory, name, options)
    oracle: Oracle[Any] = factory(**options)
    if type(oracle) is not factory:
        remember(oracle, name, factory, **options)
    return oracle


def resolve(oracle: OracleLike | None) -> Oracle[Any] | None:
    """An oracle, from itself, its name, or a mapping of its `name` and `options`, as a recipe has it.

    Raises:
        ValueError: as in `make`, or the mapping holds something else.
    """
    if isinstance(oracle, str):
        return make(oracle)
    if isinstance(oracle, Mapping):
        if "name" not in oracle or set(oracle) - {"name", "options"}:
            raise ValueError(
                f"an oracle is described by its name and its options, got {dict(oracle)}; write "
                "{'name': 'mcts', 'options': {'simulations': 1000}}, say."
            )
        return make(oracle["name"], **(oracle.get("options") or {}))
    return oracle


def known() -> list[str]:
    """The names of this library's oracles and of those that installed packages bring, as entry points of the group
    `hf_credit.oracles`."""
    return names("oracle", ORACLES)


def spec(oracle: Oracle[Any]) -> tuple[str, dict[str, Any]]:
    """The name and the options from which `make` makes an oracle again.

    Raises:
        ValueError: as for `hf_credit.environments.spec`.
    """
    return described("oracle", ORACLES, oracle)


def default_oracle(environment: Environment[Any]) -> Oracle[Any] | None:
    """The paper's kind of oracle for each of its environments, at its best; for any other environment what its own
    method `default_oracle()` gives, `None` where it has none."""
    if not getattr(environment, "hypotheses_known", True):
        return None
    if environment.name not in _OWN:
        own = getattr(environment, "default_oracle", None)
        return None if own is None else own()
    name, options = _OWN[environment.name]
    return make(name, **options)


def require_fit(oracle: Oracle[Any], environment: Environment[Any]) -> None:
    """Refuses an oracle that cannot judge an environment, by asking it about the first legal action of one task.

    Raises:
        ValueError: it is no oracle, it is made for another environment, it fails on the environment's first state, or
            its score is outside [0, 1].
    """
    if not isinstance(oracle, Oracle):
        name = getattr(oracle, "name", type(oracle).__name__)
        raise ValueError(f"an oracle must have valid_actions and score, got {name!r} without; add them.")
    name, state, action = first_move("oracle", oracle, environment)
    try:
        score = float(oracle.score(state, action))
    except Exception as error:
        raise ValueError(
            f"the oracle must score every legal action of {environment.name!r}, got {type(error).__name__} from "
            f"{name!r} on {action!r} ({error}); choose another oracle or mend this one."
        ) from error
    if not 0 <= score <= 1:
        raise ValueError(f"an oracle's score must be in [0, 1], got {score} from {name!r} on {action!r}; scale it.")
