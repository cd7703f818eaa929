"""Minesweeper with the centre revealed at the start (paper VPR, section 3.1, Appendix H)."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hf_credit.environments.actions import numbers, plain_action, tag
from hf_credit.environments.base import Environment, State, Transition
from hf_credit.environments.randomness import stream
from hf_credit.validators import whole_number

Cell = tuple[int, int]
Board = tuple[str, ...]

HIDDEN, FLAG, MINE = ".", "F", "*"
_HIDDEN = (HIDDEN, FLAG)
_LARGEST = 30


@dataclass(frozen=True, kw_only=True)
class MinesweeperState(State):
    """The board as the agent sees it, and the positions of the mines."""

    # the rows; each character is `.` (hidden), `F` (hidden and flagged), `0` to `8` (revealed, the number of mines
    # around) or `*` (a revealed mine, which ended the episode)
    board: Board
    mines: tuple[Cell, ...]  # the mines as (row, column) from 1, sorted

    def __post_init__(self) -> None:
        for side in (len(self.board), *map(len, self.board)):
            whole_number("a side of a board", side, 1, _LARGEST)


class Minesweeper(Environment[MinesweeperState]):
    """Minesweeper: reward 1 for revealing every cell without a mine, 0 for anything else.

    The mines lie uniformly at random outside the centre cell, `((rows + 1) // 2, (columns + 1) // 2)`, among the
    layouts in which a cell is left to reveal after the centre. Revealing a cell with no mine around it
    reveals its neighbours too, flagged or not. Flags have no effect: a flagged cell can be revealed, a revealed cell
    cannot be flagged. The default board is that of the paper's public code.

    Args:
        rows: number of rows, from 2 to 30.
        columns: number of columns, from 2 to 30.
        mines: number of mines, from 1 to `rows * columns - 2`.

    Raises:
        ValueError: an option is outside its range.
    """

    name = "minesweeper"
    state_type = MinesweeperState
    task_columns = ("mines",)
    reward_range = (0.0, 1.0)

    def __init__(self, rows: int = 5, columns: int = 5, mines: int = 5) -> None:
        self.rows = whole_number("rows", rows, 2, _LARGEST)
        self.columns = whole_number("columns", columns, 2, _LARGEST)
        # The centre has no mine, and at least one other cell has none.
        self.mines = whole_number("mines", mines, 1, rows * columns - 2)

    @property
    def centre(self) -> Cell:
        """The cell that is revealed at the start."""
        return (self.rows + 1) // 2, (self.columns + 1) // 2

    @property
    def instructions(self) -> str:
        return (
            f"You are playing Minesweeper on a grid of {self.rows} rows and {self.columns} columns with exactly "
            f"{self.mines} hidden {'mine' if self.mines == 1 else 'mines'}. '.' is a hidden cell, 'F' a hidden cell "
            "that you flagged, and a digit a revealed cell: how many of its up to 8 neighbours hold a mine. Reveal "
            "every cell without a mine to win; revealing a mine or an illegal action loses. Infer from the digits how "
            "likely each hidden cell is to hold a mine, and reveal the safest. Revealing a 0 reveals its neighbours "
            "too; a flag is only a mark, and flagging a flagged cell removes it.\n"
            "Each turn, choose a hidden cell by its row and column (from 1, from the top left) and reply with "
            f"{tag('reveal ROW COLUMN')} or {tag('flag ROW COLUMN')}, for example {tag('reveal 1 2')}."
        )

    @property
    def max_turns(self) -> int:
        """The number of cells, 25 by default as in the public code."""
        return self.rows * self.columns

    def sample_task(self, seed: int) -> dict[str, Any]:
        """Draws the mines: `{"mines": [[row, column], ...]}`, from 1, sorted."""
        draw = stream(seed, self.name, "task")
        cells = list(itertools.product(range(1, self.rows + 1), range(1, self.columns + 1)))
        cells.remove(self.centre)
        # A layout with a mine next to the centre is valid, so this terminates.
        while True:
            mines = tuple(sorted(draw.sample(cells, self.mines)))
            if _left_to_find(self._opened(mines), mines):
                return {"mines": [list(mine) for mine in mines]}

    def initial_state(self, task: Mapping[str, Any], seed: int) -> MinesweeperState:
        """The board with the centre revealed; finished at once if no other cell without a mine is hidden.

        Raises:
            ValueError: the row's mines are not `mines` different cells of the board outside the centre.
        """
        mines = self._read_mines(task.get("mines"))
        board = self._opened(mines)
        return MinesweeperState(
            seed=seed, status="active" if _left_to_find(board, mines) else "finished", board=board, mines=mines
        )

    def observe(self, state: MinesweeperState) -> str:
        mines, columns = len(state.mines), len(state.board[0])
        width = len(str(max(len(state.board), columns)))
        grid = [["", *map(str, range(1, columns + 1))]]
        grid += [[str(number), *row] for number, row in enumerate(state.board, start=1)]
        lines = [f"{mines} {'mine' if mines == 1 else 'mines'} in total."]
        return "\n".join(lines + [" ".join(entry.rjust(width) for entry in line) for line in grid])

    def legal_actions(self, state: MinesweeperState) -> tuple[str, ...]:
        """`reveal r c` for every hidden cell, row by row, then `flag r c` for the same cells."""
        if state.status != "active":
            return ()
        cells = [
            f"{row} {column}"
            for row, line in enumerate(state.board, start=1)
            for column, mark in enumerate(line, start=1)
            if mark in _HIDDEN
        ]
        return (*(f"reveal {cell}" for cell in cells), *(f"flag {cell}" for cell in cells))

    def step(self, state: MinesweeperState, action: str) -> Transition[MinesweeperState]:
        if state.status != "active":
            return self._transition(state, 0.0, None)
        plain = plain_action(action)
        cell = numbers(plain, "reveal", 2) or numbers(plain, "flag", 2)
        if cell is None or plain not in self.legal_actions(state):
            state = replace(state, status="invalid")
        elif plain.startswith("flag"):
            state = replace(state, board=_toggled(state.board, *cell))
        else:
            board = _revealed(state.board, state.mines, *cell)
            over = cell in state.mines or not _left_to_find(board, state.mines)
            state = replace(state, board=board, status="finished" if over else "active")
        return self._transition(state, self.outcome(state), plain if cell else None)

    def outcome(self, state: MinesweeperState) -> float:
        """1.0 if every cell without a mine is revealed, else 0.0."""
        return float(state.status == "finished" and not _left_to_find(state.board, state.mines))

    def metrics(self, state: MinesweeperState) -> dict[str, float]:
        """`success` (the outcome) and `completion`: the share of the cells hidden at the start that is revealed.

        These are the paper's SR and CR (Table 1). Completion is 1 if the start reveals all.
        """
        left, at_start = (_left_to_find(board, state.mines) for board in (state.board, self._opened(state.mines)))
        return {"success": self.outcome(state), "completion": 1 - left / at_start if at_start else 1.0}

    def _opened(self, mines: tuple[Cell, ...]) -> Board:
        """The board with its centre revealed."""
        return _revealed((HIDDEN * self.columns,) * self.rows, mines, *self.centre)

    def _read_mines(self, value: Any) -> tuple[Cell, ...]:
        try:
            mines = sorted((operator.index(row), operator.index(column)) for row, column in value)
        except (TypeError, ValueError):
            mines = []
        within = all(1 <= row <= self.rows and 1 <= column <= self.columns for row, column in mines)
        if not within or self.centre in mines or not len(mines) == len(set(mines)) == self.mines:
            raise ValueError(
                f"a Minesweeper task's mines must be {self.mines} different [row, column] of the {self.rows}x"
                f"{self.columns} board outside its centre {list(self.centre)}, got {value!r}; sample the task "
                "with the options of this environment."
            )
        return tuple(mines)


@lru_cache(maxsize=64)
def neighbours(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    """For every cell of a board, numbered row by row from 0, the up to 8 cells around it."""
    return tuple(
        tuple(
            other_row * columns + other_column
            for other_row in range(max(row - 1, 0), min(row + 2, rows))
            for other_column in range(max(column - 1, 0), min(column + 2, columns))
            if (other_row, other_column) != (row, column)
        )
        for row in range(rows)
        for column in range(columns)
    )


def _left_to_find(board: Board, mines: tuple[Cell, ...]) -> int:
    """The number of hidden cells without a mine."""
    text = "".join(board)
    return sum(map(text.count, _HIDDEN)) + text.count(MINE) - len(mines)


def _toggled(board: Board, row: int, column: int) -> Board:
    line = board[row - 1]
    mark = HIDDEN if line[column - 1] == FLAG else FLAG
    return (*board[: row - 1], f"{line[: column - 1]}{mark}{line[column:]}", *board[row:])


def _revealed(board: Board, mines: tuple[Cell, ...], row: int, column: int) -> Board:
    rows, columns = len(board), len(board[0])
    around = neighbours(rows, columns)
    mined = {(row - 1) * columns + column - 1 for row, column in mines}
    marks = list("".join(board))
    waiting = [(row - 1) * columns + column - 1]
    while waiting:
        cell = waiting.pop()
        if marks[cell] not in _HIDDEN:
            continue
        count = len(mined.intersection(around[cell]))
        marks[cell] = MINE if cell in mined else str(count)
        if marks[cell] == "0":
            waiting.extend(around[cell])
    text = "".join(marks)
    return tuple(text[start : start + columns] for start in range(0, len(text), columns))
