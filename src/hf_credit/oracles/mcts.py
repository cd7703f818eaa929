"""The search-based oracle of Tic-Tac-Toe (paper VPR, section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from hf_credit.environments.randomness import derive
from hf_credit.environments.tic_tac_toe import GAME, TicTacToe, TicTacToeState, action_of
from hf_credit.environments.tree_search import best_moves, check_playouts, search
from hf_credit.options import Count, NotNegative, Options
from hf_credit.oracles.base import ValidSetOracle


@dataclass(frozen=True)
class MCTSOracle(Options, ValidSetOracle[TicTacToeState]):
    """Monte Carlo tree search: `A*(s) = {a : V(s, a) = max_b V(s, b)}` (paper VPR, section 2.2).

    `V` is the value estimate of `hf_credit.environments.tree_search.search` for the agent against perfect play. It
    does not depend on the opponent of the episode, so it is a function of the board; every board's search has its own
    random stream, derived from `seed`, and its result is cached.

    Sampled means are hardly ever equal, so without `solve` the valid set is mostly one move. With `solve` and enough
    simulations (10,000 prove every board) it is exactly the set of minimax-optimal moves, which the paper's public
    code uses instead of the search. The available text of the paper lacks the numbers of simulations of its ablation
    (section 3.4) and its default; 1000 is ours.

    Args:
        simulations: simulations per board, at least 1; few make an oracle that is often wrong.
        exploration: the exploration constant of UCT, at least 0.
        rollouts: random playouts per new position, at least 1.
        solve: whether decided positions are backed up exactly.
        seed: of the search's randomness.
        tolerance: how far below the best value a move still counts as tied, at least 0.

    Raises:
        ValueError: an option is outside its range.
    """

    name: ClassVar[str] = "mcts"
    environment_type: ClassVar[type[TicTacToe]] = TicTacToe

    simulations: Count = 1000
    exploration: NotNegative = 2**0.5
    rollouts: Count = 1
    solve: bool = False
    seed: int = 0
    tolerance: NotNegative = 1e-9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_playouts(self.simulations, self.rollouts)

    def valid_actions(self, state: TicTacToeState) -> frozenset[str]:
        """Returns every move tied for the best value; moves that the search never tried are not valid."""
        return _valid_actions(self, state.board) if state.status == "active" else frozenset()


@lru_cache(maxsize=2**14)
def _valid_actions(oracle: MCTSOracle, board: str) -> frozenset[str]:
    options = oracle.simulations, oracle.exploration, oracle.rollouts, oracle.solve
    statistics = search(GAME, board, *options, derive(oracle.seed, board))
    return frozenset(action_of(cell) for cell in best_moves(statistics, oracle.tolerance))
