"""Tic-Tac-Toe against a random or an MCTS opponent (VPR, section 3.1, Appendix H)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Annotated, Any, Literal

from hf_credit.boundary import Range
from hf_credit.environments.actions import numbers, plain_action, tag
from hf_credit.environments.base import Environment, State, Transition
from hf_credit.environments.randomness import derive, stream
from hf_credit.environments.tree_search import best_moves, check_playouts, search
from hf_credit.options import Count, NotNegative, Options, Share
from hf_credit.validators import one_of

EMPTY_BOARD = "." * 9
_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))

_SEARCHES = 32  # seeds of the opponent's search of a board: enough to vary its play, few enough to be cached


@dataclass(frozen=True, kw_only=True)
class TicTacToeState(State):
    """A board with the agent to move, or a final board."""

    board: Annotated[str, Range(9, 9)] = EMPTY_BOARD  # nine characters of `X`, `O` and `.`, row by row
    agent: Literal["X", "O"] = "X"  # the agent's mark; `X` moves first
    opponent: Literal["random", "mcts"] = "random"


class TicTacToeGame:
    """The rules as a `hf_credit.environments.tree_search.Game` over boards.

    Player 0 is `X`, and a move is a cell, 0-8. With 5478 boards, every result is cached.
    """

    @staticmethod
    @cache
    def player(board: str) -> int:
        return board.count("X") - board.count("O")

    @staticmethod
    @cache
    def moves(board: str) -> tuple[int, ...]:
        return tuple(cell for cell, mark in enumerate(board) if mark == ".")

    @staticmethod
    @cache
    def play(board: str, cell: int) -> str:
        return f"{board[:cell]}{'XO'[TicTacToeGame.player(board)]}{board[cell + 1 :]}"

    @staticmethod
    @cache
    def returns(board: str) -> float | None:
        for a, b, c in _LINES:
            if board[a] != "." and board[a] == board[b] == board[c]:
                return 1.0 if board[a] == "X" else -1.0
        return None if "." in board else 0.0


GAME = TicTacToeGame()


@dataclass(eq=False, repr=False)
class TicTacToe(Options, Environment[TicTacToeState]):
    """Tic-Tac-Toe: reward 1 for a win, 0 for a draw, -1 for a loss; an invalid action loses.

    A task row determines who moves first and the kind of opponent. The opponent's move depends on the board and the
    state's seed: a uniformly random move, or one of the best moves of a UCT search. The defaults are the opponent of
    the paper's public evaluation: 100 simulations, exploration constant 2, 10 rollouts, with solver. It sometimes
    errs in the opening; with 300 simulations hardly ever.

    Args:
        opponent: `"random"`, `"mcts"`, or `"mixture"` of both across tasks, as in the paper's training.
        opponent_simulations: simulations of the search for each move, at least 1; few make a weak opponent.
        opponent_exploration: exploration constant of the search, at least 0.
        opponent_rollouts: random playouts of the search for each new position, at least 1.
        opponent_solve: whether the search solves decided positions exactly.
        mcts_share: share of tasks with the MCTS opponent in `"mixture"`, in [0, 1].
        agent: whether the agent moves `"first"`, `"second"`, or `"either"` across tasks.

    Raises:
        ValueError: an option is out of range.
    """

    name = "tic_tac_toe"
    state_type = TicTacToeState
    task_columns = ("agent", "opponent")
    reward_range = (-1.0, 1.0)
    max_turns = 5  # the most marks of the first player
    instructions = (
        "You are playing Tic-Tac-Toe on a 3x3 grid. X moves first, then the players take turns. Three of your "
        "marks in a row, a column or a diagonal win; a full grid without such a line is a draw. An illegal move "
        "loses. '.' is an empty cell.\n"
        "Each turn, choose one empty cell by its row and column (1 to 3, from the top left) and reply with "
        f"{tag('place ROW COLUMN')}, for example {tag('place 1 3')}."
    )

    opponent: Literal["mixture", "random", "mcts"] = "mixture"
    opponent_simulations: Count = 100
    opponent_exploration: NotNegative = 2.0
    opponent_rollouts: Count = 10
    opponent_solve: bool = True
    mcts_share: Share = 0.5
    agent: Literal["either", "first", "second"] = "either"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_playouts(self.opponent_simulations, self.opponent_rollouts, "opponent_")

    def sample_task(self, seed: int) -> dict[str, Any]:
        """A row with `agent`, `"first"` or `"second"`, and `opponent`, `"random"` or `"mcts"`."""
        draw = stream(seed, self.name, "task")
        agent = draw.choice(("first", "second"))
        opponent = "mcts" if draw.random() < self.mcts_share else "random"
        return {
            "agent": agent if self.agent == "either" else self.agent,
            "opponent": opponent if self.opponent == "mixture" else self.opponent,
        }

    def initial_state(self, task: Mapping[str, Any], seed: int) -> TicTacToeState:
        """The state at the agent's first turn; if the agent is second, the opponent has moved.

        Raises:
            ValueError: a column of the row is missing or has an unknown value.
        """
        agent = one_of("a Tic-Tac-Toe task's agent", task.get("agent"), ("first", "second"))
        opponent: Any = one_of("a Tic-Tac-Toe task's opponent", task.get("opponent"), ("random", "mcts"))
        state = TicTacToeState(seed=seed, opponent=opponent, agent="X" if agent == "first" else "O")
        if state.agent == "O":
            state = replace(state, board=GAME.play(state.board, self._opponent_move(state)))
        return state

    def observe(self, state: TicTacToeState) -> str:
        if state.status == "active":
            note = "Your turn."
        elif state.status == "invalid":
            note = "Invalid action: you lost."
        else:
            note = {1.0: "You won.", 0.0: "Draw.", -1.0: "You lost."}[self.outcome(state)]
        rows = (f"{row + 1} {' '.join(state.board[3 * row : 3 * row + 3])}" for row in range(3))
        return "\n".join([f"You are {state.agent}. {note}", "  1 2 3", *rows])

    def legal_actions(self, state: TicTacToeState) -> tuple[str, ...]:
        """`place r c` for every empty cell, row by row."""
        if state.status != "active":
            return ()
        return tuple(action_of(cell) for cell in GAME.moves(state.board))

    def step(self, state: TicTacToeState, action: str) -> Transition[TicTacToeState]:
        """Plays the agent's move and the opponent's reply, `info["opponent_action"]` (`None` without one)."""
        if state.status != "active":
            return self._transition(state, 0.0, None, opponent_action=None)
        plain, answer = plain_action(action), None
        place = numbers(plain, "place", 2)
        if place is None or not all(1 <= number <= 3 for number in place) or state.board[_cell(place)] != ".":
            state = replace(state, status="invalid")
        else:
            state = _on(state, GAME.play(state.board, _cell(place)))
            if state.status == "active":
                answer = self._opponent_move(state)
                state = _on(state, GAME.play(state.board, answer))
        answered = None if answer is None else action_of(answer)
        return self._transition(state, self.outcome(state), plain if place else None, opponent_action=answered)

    def outcome(self, state: TicTacToeState) -> float:
        """1.0 for a win, 0.0 for a draw or an unfinished game, -1.0 for a loss or an invalid action."""
        if state.status == "invalid":
            return -1.0
        first_players = GAME.returns(state.board) or 0.0
        return first_players if state.agent == "X" else 0.0 - first_players

    def metrics(self, state: TicTacToeState) -> dict[str, float]:
        """`success` (a win), `draw`, `loss`, `return`, and the return as `return_first` or `return_second`.

        The paper's Table 1 reports the last two, of which an episode has the one that applies.
        """
        outcome = self.outcome(state)
        return {
            "success": float(outcome == 1),
            "draw": float(outcome == 0 and state.status == "finished"),
            "loss": float(outcome == -1),
            "return": outcome,
            "return_first" if state.agent == "X" else "return_second": outcome,
        }

    def _opponent_move(self, state: TicTacToeState) -> int:
        draw = stream(state.seed, self.name, "opponent", state.board)
        if state.opponent == "random":
            return draw.choice(GAME.moves(state.board))
        options = self.opponent_simulations, self.opponent_exploration, self.opponent_rollouts, self.opponent_solve
        return draw.choice(_searched_moves(state.board, options, draw.randrange(_SEARCHES)))


def action_of(cell: int) -> str:
    """The plain action that marks `cell`, 0-8."""
    return f"place {cell // 3 + 1} {cell % 3 + 1}"


def _on(state: TicTacToeState, board: str) -> TicTacToeState:
    return replace(state, board=board, status="active" if GAME.returns(board) is None else "finished")


def _cell(place: tuple[int, ...]) -> int:
    return 3 * (place[0] - 1) + place[1] - 1


@lru_cache(maxsize=2**15)
def _searched_moves(board: str, options: tuple[int, float, int, bool], number: int) -> tuple[int, ...]:
    return best_moves(search(GAME, board, *options, derive(number, "tic_tac_toe", board)))
