"""Oracles: how long a verdict takes, compared with constraint and search libraries on the same positions.

- Minesweeper: the posterior over every layout that agrees with the board. Positions are those before each action of
  random play (uniform over legal actions), and of play by the oracle, whose boards are more open and harder. Every
  board is asked about once, so no cache helps. There is no peer; the aims are 1 ms and 20 ms.
- Sudoku: ours finds the solution and proves it the only one, which verdicts rest on; python-constraint finds a first
  solution, with its default solver. Building its problem is not timed.
- Tic-Tac-Toe: our search and open_spiel's MCTS in Python from the same boards, with as many simulations, the same
  exploration constant, one random playout a new position and the same solver switch. Ours shares the statistics of
  positions that several orders of moves lead to. With the solver open_spiel stops once the best move is proven; ours
  goes on until every move is, since all moves tied for the best are valid.

Milliseconds are those of the process on a processor: medians over the positions, peers in turns on each.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from random import Random
from statistics import median
from typing import Any

from common import arguments, milliseconds, report

from hf_credit import make
from hf_credit.environments.minesweeper import FLAG, HIDDEN, Minesweeper
from hf_credit.environments.sudoku_grid import BOXES, Cells, solve
from hf_credit.environments.tic_tac_toe import GAME
from hf_credit.environments.tree_search import search
from hf_credit.oracles import Oracle, default_oracle

MINESWEEPER = ((5, 5, 1.0), (9, 10, 20.0))
"""Rows and columns, mines, and the most milliseconds aimed at."""
SUDOKU = ((4, 8), (6, 18), (9, 40), (9, 50))
"""Rows and columns, and blanks."""
SEARCHES = ((100, False), (1000, False), (1000, True))
"""Simulations, and whether decided positions are solved."""
EXPLORATION = 2.0

PEERS = {"constraint": "python-constraint2", "pyspiel": "open_spiel"}


def minesweeper(games: int) -> Iterator[dict[str, Any]]:
    for size, mines, aim in MINESWEEPER:
        environment = Minesweeper(rows=size, columns=size, mines=mines)
        oracle = default_oracle(environment)
        assert oracle is not None
        asked: set[Any] = set()
        for player in ("random", "oracle"):
            times = [time for seed in range(games) for time in _times(environment, oracle, player, seed, asked)]
            case = f"{size}x{size}, {mines} mines, {player} play"
            yield _line("posterior", case, times, aim=f"< {aim:g} ms", met=median(times) < aim)


def _times(environment: Minesweeper, oracle: Oracle[Any], player: str, seed: int, asked: set[Any]) -> Iterator[float]:
    """The time of each verdict of a game about a board that was not asked about before."""
    draws = Random(f"{player} {seed}")
    task = environment.sample_task(draws.randrange(2**31))
    state = environment.initial_state(task, 0)
    while actions := environment.legal_actions(state):
        board = tuple(row.replace(FLAG, HIDDEN) for row in state.board)
        if board not in asked:
            asked.add(board)
            yield milliseconds(lambda state=state: oracle.valid_actions(state))
        choices = actions if player == "random" else sorted(oracle.valid_actions(state))
        state = environment.step(state, draws.choice(choices)).state


def sudoku(puzzles: int) -> Iterator[dict[str, Any]]:
    for size, blanks in SUDOKU:
        environment = make("sudoku", size=size, blanks=blanks)
        own, peer = [], []
        for seed in range(puzzles):
            puzzle = environment.sample_task(seed)["puzzle"]
            cells = tuple(0 if mark == "." else int(mark) for mark in puzzle)
            problem = _problem(cells, size)
            own.append(milliseconds(lambda cells=cells, size=size: solve(cells, size)))
            peer.append(milliseconds(problem.getSolution))
        yield _line("Sudoku", f"{size}x{size}, {blanks} blanks", own, PEERS["constraint"], peer)


def _problem(cells: Cells, size: int) -> Any:
    """A puzzle as python-constraint wants it: each row, column and box all different."""
    import constraint

    problem = constraint.Problem()
    for cell, digit in enumerate(cells):
        problem.addVariable(cell, [digit] if digit else list(range(1, size + 1)))
    height, width = BOXES[size]
    for line in range(size):
        row, column = divmod(line, size // width)
        corner = row * height * size + column * width
        for unit in (
            [line * size + other for other in range(size)],
            [other * size + line for other in range(size)],
            [corner + down * size + right for down, right in itertools.product(range(height), range(width))],
        ):
            problem.addConstraint(constraint.AllDifferentConstraint(), unit)
    return problem


def tic_tac_toe(boards: int) -> Iterator[dict[str, Any]]:
    for simulations, solve_decided in SEARCHES:
        own, peer = [], []
        for seed in range(boards):
            moves = _opening(seed)
            own.append(milliseconds(_own_search(moves, simulations, solve_decided, seed)))
            peer.append(milliseconds(_peer_search(moves, simulations, solve_decided, seed)))
        case = f"{simulations} simulations{', solver' if solve_decided else ''}"
        yield _line("MCTS", case, own, PEERS["pyspiel"], peer)


def _opening(seed: int) -> list[int]:
    """Zero to four random moves, after which the game goes on."""
    draws = Random(seed)
    return draws.sample(range(9), seed % 5)


def _own_search(moves: list[int], simulations: int, solve_decided: bool, seed: int) -> Callable[[], Any]:
    board = "." * 9
    for move in moves:
        board = GAME.play(board, move)
    return lambda: search(
        GAME, board, simulations=simulations, exploration=EXPLORATION, solve=solve_decided, seed=seed
    )


def _peer_search(moves: list[int], simulations: int, solve_decided: bool, seed: int) -> Callable[[], Any]:
    import numpy
    import pyspiel
    from open_spiel.python.algorithms import mcts

    game = pyspiel.load_game("tic_tac_toe")
    state = game.new_initial_state()
    for move in moves:
        state.apply_action(move)
    evaluator = mcts.RandomRolloutEvaluator(1, numpy.random.RandomState(seed))
    random_state = numpy.random.RandomState(seed)
    bot = mcts.MCTSBot(game, EXPLORATION, simulations, evaluator, solve=solve_decided, random_state=random_state)
    return lambda: bot.mcts_search(state)


def _line(
    oracle: str,
    case: str,
    own: list[float],
    peer: str | None = None,
    times: list[float] | None = None,
    aim: str | None = None,
    met: bool | None = None,
) -> dict[str, Any]:
    return {
        "oracle": oracle,
        "case": case,
        "positions": len(own),
        "median, ms": median(own),
        "99th percentile, ms": sorted(own)[int(0.99 * len(own))],
        "aim": aim,
        "met": None if met is None else "yes" if met else "no",
        "peer": peer,
        "peer's median, ms": None if times is None else median(times),
        "times as fast": None if times is None else median(times) / median(own),
    }


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = list(minesweeper(options.games))
    for module, cases in (("constraint", sudoku(options.puzzles)), ("pyspiel", tic_tac_toe(options.boards))):
        if find_spec(module) is None:
            print(f"{PEERS[module]} is not installed: its rows are left out; pip install '.[benchmarks]' in a clone.")
        else:
            rows.extend(cases)
    return rows


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(__doc__, games=200, puzzles=50, boards=50)
    options = parser.parse_args(arguments_given)
    text = "The time of a verdict about a position that nothing is known about yet, CPU milliseconds of one thread."
    report(options, "oracles", text, compare(options))


if __name__ == "__main__":
    main()
