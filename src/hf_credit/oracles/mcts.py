"""The search-based oracle of Tic-Tac-Toe (paper VPR, section 2.2)."""

from __future__ import annotations

from functools import lru_cache

from hf_credit.environments.randomness import derive
from hf_credit.environments.tic_tac_toe import TicTacToe, TicTacToeState, action_of, search_board
from hf_credit.environments.tree_search import best_moves, check_options
from hf_credit.oracles.base import ValidSetOracle


class MCTSOracle(ValidSetOracle[TicTacToeState]):
    """Monte Carlo tree search: `A*(s) = {a : V(s, a) = max_b V(s, b)}` (paper VPR, section 2.2).

    `V` is the value estimate of `hf_credit.environments.tree_search.search` for the agent against perfect play. It
    does not depend on how the opponent of the episode plays, so it is a function of the board alone; every board's
    search has its own random stream, drawn from `seed`, and its result is cached.

    Sampled means are hardly ever equal, so without `solve` the valid set is mostly one move. With `solve` and enough
    simulations (10,000 prove every board) it is exactly the set of minimax-optimal moves, which is what the paper's
    public code uses in place of the search. The numbers of simulations in the paper's ablation (section 3.4) and its
    default are missing from the text we have; 1000 is ours.

    Args:
        simulations: simulations per board, at least 1; few make an oracle that is often wrong.
        exploration: the exploration constant of UCT, at least 0.
        rollouts: random playouts per new position, at least 1.
        solve: whether decided positions are backed up exactly.
        seed: the source of the search's randomness.
        tolerance: how far below the best value a move still counts as tied, at least 0.

    Raises:
        ValueError: an option is outside its range.
    """

    name = "mcts"
    environment_type = TicTacToe

    def __init__(
        self,
        simulations: int = 1000,
        exploration: float = 2**0.5,
        rollouts: int = 1,
        solve: bool = False,
        seed: int = 0,
        tolerance: float = 1e-9,
    ) -> None:
        check_options(simulations, exploration, rollouts, solve)
        if not isinstance(seed, int):
            raise ValueError(f"seed must be an integer, got {seed!r}; use 0 for the default.")
        if not isinstance(tolerance, int | float) or not tolerance >= 0:
            raise ValueError(f"tolerance must be a number of at least 0, got {tolerance!r}; use 0 for exact ties.")
        self.simulations = simulations
        self.exploration = exploration
        self.rollouts = rollouts
        self.solve = solve
        self.seed = seed
        self.tolerance = tolerance

    def valid_actions(self, state: TicTacToeState) -> frozenset[str]:
        """Every move tied for the best value; a move that the search never tried is none."""
        if state.status != "active":
            return frozenset()
        return _valid_actions(
            state.board, self.simulations, self.exploration, self.rollouts, self.solve, self.seed, self.tolerance
        )


@lru_cache(maxsize=2**14)
def _valid_actions(
    board: str, simulations: int, exploration: float, rollouts: int, solve: bool, seed: int, tolerance: float
) -> frozenset[str]:
    statistics = search_board(board, simulations, exploration, rollouts, solve, derive(seed, board))
    return frozenset(action_of(cell) for cell in best_moves(statistics, tolerance))
