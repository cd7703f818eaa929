"""Sudoku: each action fills one cell (paper VPR, sections 2.2 and 3.1, Appendix H)."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from hf_credit.content import Content
from hf_credit.environments import board_pictures
from hf_credit.environments.actions import numbers, plain_action, tag
from hf_credit.environments.base import Environment, State, Transition
from hf_credit.environments.randomness import stream
from hf_credit.environments.sudoku_grid import BOXES, digits_left, known_puzzle, random_puzzle, solve
from hf_credit.validators import one_of, whole_number

Notation = Literal["grid", "named", "candidates", "picture"]
"""The notation of positions and actions: a matrix of digits, the name and content of each cell, this with the digits
that are left for each empty cell, or a picture of the same with the named cells as actions."""

_DEFAULT_BLANKS = {4: 8, 6: 18, 9: 40}
_ROWS = "abcdefghi"
_NAMED = re.compile(r"([a-z])([0-9])=([0-9])")

# For each notation, how the grid is shown and how a reply ends.
_CALLED = "A cell is called by its row, a to {last} from the top, and its column, 1 to {size} from the left"
_CELLS = f"{_CALLED}; what it holds stands behind '=', and "
_FILL_NAMED = f"the cell as it shall read, for example digit 3 in row a, column 2: {tag('a2=3')}"
_NOTATIONS = {
    "grid": (
        "Rows are R1 to R{size} from the top, columns are C1 to C{size} from the left, and '.' is an empty cell.",
        f"the row, the column and the digit, for example digit 3 in row 1, column 2: {tag('fill 1 2 3')}",
    ),
    "named": (f"{_CELLS}'.' is an empty cell.", _FILL_NAMED),
    "candidates": (
        f"{_CELLS}behind '?' stand the digits that its row, column and box leave an empty cell.",
        _FILL_NAMED,
    ),
    "picture": (
        f"{_CALLED}. The picture shows what they hold; marks in an empty cell are the digits that its row, column and "
        "box leave, each where it stands in a box of 1, 2, ... in order.",
        _FILL_NAMED,
    ),
}


@dataclass(frozen=True, kw_only=True)
class SudokuState(State):
    """A position of a Sudoku."""

    givens: str  # the puzzle, row after row, `.` for a blank
    cells: str  # the puzzle with the cells filled so far
    notation: Notation = "grid"

    @property
    def size(self) -> int:
        return math.isqrt(len(self.givens))


@functools.lru_cache(maxsize=16384)
def solution_of(givens: str) -> str:
    """The one solution of a puzzle written as in `SudokuState`.

    Raises:
        ValueError: the puzzle has no solution, or more than one.
    """
    return _text(solve(_cells(givens), math.isqrt(len(givens))))


class Sudoku(Environment[SudokuState]):
    """Sudoku on a 4x4, 6x6 or 9x9 grid, from puzzles with exactly one solution.

    Filling an empty cell with any digit is legal and final: a wrong digit stays, so the grid can no longer be solved,
    but the episode goes on and later cells can still be right. It ends when no cell is empty.

    Args:
        size: 4 (boxes of 2x2), 6 (2 rows by 3 columns) or 9 (3x3).
        blanks: the exact number of empty cells of a sampled puzzle; 8, 18 and 40 by default. The paper has 40 on 9x9.
        notation: `"grid"` shows a matrix of digits with row and column labels, and an action is `fill 2 3 1`.
            `"named"` shows each cell as its name and content, such as `b3=.`, and an action is the filled cell,
            `b3=1`; a small model learns this far sooner, as it finds cells by name instead of counting.
            `"candidates"` also shows the digits that its row, column and box leave an empty cell, such as `b3?14`, or
            `b3?` if a wrong digit has left none. `"picture"` shows the same as a picture of
            `hf_credit.environments.board_pictures`, for models that see.

    Raises:
        ValueError: an option is not possible; for `blanks`, if a bounded search finds no such puzzle.
    """

    name = "sudoku"
    state_type = SudokuState
    task_columns = ("puzzle",)
    reward_range = (0.0, 1.0)

    def __init__(self, size: int = 9, blanks: int | None = None, notation: Notation = "grid") -> None:
        if not (type(size) is int and size in BOXES):
            raise ValueError(f"size must be one of {', '.join(map(str, BOXES))}, got {size!r}; use one of these.")
        self.size = size
        self.blanks = whole_number("blanks", _DEFAULT_BLANKS[size] if blanks is None else blanks, 1)
        one_of("notation", notation, get_args(Notation))
        self.notation = notation
        known_puzzle(size, self.blanks)

    @property
    def instructions(self) -> str:
        height, width = BOXES[self.size]
        shown, reply = _NOTATIONS[self.notation]
        return (
            f"You are solving a {self.size}x{self.size} Sudoku. Every row, every column and every box of {height} "
            f"rows by {width} columns must hold each digit from 1 to {self.size} exactly once. "
            f"{shown.format(size=self.size, last=_ROWS[self.size - 1])}\n"
            "Each turn, fill one empty cell; a filled cell cannot be changed. Think first if you like, then end your "
            f"reply with {reply}"
        )

    @property
    def max_turns(self) -> int:
        return self.blanks

    def sample_task(self, seed: int) -> dict[str, Any]:
        """A row with `puzzle`: the digits row after row, `.` for a blank."""
        rng = stream(seed, self.name, self.size, self.blanks)
        return {"puzzle": _text(random_puzzle(self.size, self.blanks, rng))}

    def initial_state(self, task: Mapping[str, Any], seed: int) -> SudokuState:
        """The state of `task["puzzle"]`.

        Raises:
            ValueError: the puzzle is not `size * size` digits and `.`, has no blank or more than `blanks`, or does not
                have exactly one solution.
        """
        puzzle, digits = task.get("puzzle"), "".join(map(str, range(1, self.size + 1)))
        if not (isinstance(puzzle, str) and len(puzzle) == self.size**2 and set(puzzle) <= {".", *digits}):
            raise ValueError(
                f"a puzzle of size {self.size} must be {self.size**2} characters out of '.{digits}', got {puzzle!r}; "
                "correct it, or make the environment with another size."
            )
        if not 1 <= puzzle.count(".") <= self.blanks:
            raise ValueError(
                f"a puzzle must have 1 to {self.blanks} blanks, as an episode has {self.blanks} turns, got "
                f"{puzzle.count('.')}; use another puzzle, or make the environment with other blanks."
            )
        solution_of(puzzle)
        return SudokuState(seed=seed, givens=puzzle, cells=puzzle, notation=self.notation)

    def observe(self, state: SudokuState) -> Content:
        size = state.size
        rows = [state.cells[start : start + size] for start in range(0, size * size, size)]
        if state.notation == "picture":
            left = map(frozenset, digits_left(_cells(state.cells), size))
            shown = (one if digit == "." else int(digit) for digit, one in zip(state.cells, left, strict=True))
            return (board_pictures.sudoku(tuple(shown), BOXES[size]),)
        if state.notation != "grid":
            contents = _contents(state)
            named = [f"{name}{content}" for name, content in zip(_names(size), contents, strict=True)]
            return "\n".join(" ".join(named[start : start + size]) for start in range(0, size * size, size))
        header = "   " + " ".join(f"C{column}" for column in range(1, size + 1))
        return "\n".join([header, *(f"R{number} {' '.join(row)}" for number, row in enumerate(rows, 1))])

    def legal_actions(self, state: SudokuState) -> tuple[str, ...]:
        if state.status != "active":
            return ()
        fills = fill_actions(state.size, state.notation)
        return tuple(action for cell, digit in enumerate(state.cells) if digit == "." for action in fills[cell])

    def step(self, state: SudokuState, action: str) -> Transition[SudokuState]:
        if state.status != "active":
            return self._transition(state, 0.0, None)
        plain = plain_action(action)
        fill = _read(plain, state.notation)
        after = self._after(state, fill)
        return self._transition(after, self.outcome(after), None if fill is None else plain)

    def outcome(self, state: SudokuState) -> float:
        return float("." not in state.cells and state.cells == solution_of(state.givens))

    def metrics(self, state: SudokuState) -> dict[str, float]:
        """`success`: whether the puzzle is solved; `completion`: the share of its blanks filled correctly."""
        blanks = state.givens.count(".")
        right = sum(map(str.__eq__, state.cells, solution_of(state.givens))) - (len(state.givens) - blanks)
        return {"success": self.outcome(state), "completion": right / blanks}

    def _after(self, state: SudokuState, fill: tuple[int, ...] | None) -> SudokuState:
        size = state.size
        if fill is None or min(fill) < 1 or max(fill) > size:
            return replace(state, status="invalid")
        row, column, digit = fill
        cell = (row - 1) * size + column - 1
        if state.cells[cell] != ".":
            return replace(state, status="invalid")
        cells = f"{state.cells[:cell]}{digit}{state.cells[cell + 1 :]}"
        return replace(state, cells=cells, status="active" if "." in cells else "finished")


@functools.cache
def fill_actions(size: int, notation: Notation = "grid") -> tuple[tuple[str, ...], ...]:
    """For each cell, the actions that fill it with 1, 2, ..."""
    digits = range(1, size + 1)
    if notation != "grid":
        return tuple(tuple(f"{name}={digit}" for digit in digits) for name in _names(size))
    cells = ((cell // size + 1, cell % size + 1) for cell in range(size * size))
    return tuple(tuple(f"fill {row} {column} {digit}" for digit in digits) for row, column in cells)


def _names(size: int) -> list[str]:
    return [f"{row}{column}" for row in _ROWS[:size] for column in range(1, size + 1)]


def _contents(state: SudokuState) -> list[str]:
    if state.notation == "named":
        return [f"={digit}" for digit in state.cells]
    left = digits_left(_cells(state.cells), state.size)
    return [
        f"={digit}" if digit != "." else f"?{''.join(map(str, candidates))}"
        for digit, candidates in zip(state.cells, left, strict=True)
    ]


def _read(action: str, notation: Notation) -> tuple[int, ...] | None:
    if notation == "grid":
        return numbers(action, "fill", 3)
    match = _NAMED.fullmatch(action)
    return None if match is None else (ord(match[1]) - ord("a") + 1, int(match[2]), int(match[3]))


def _cells(text: str) -> tuple[int, ...]:
    return tuple(0 if character == "." else int(character) for character in text)


def _text(cells: tuple[int, ...]) -> str:
    return "".join(map(str, cells)).replace("0", ".")
