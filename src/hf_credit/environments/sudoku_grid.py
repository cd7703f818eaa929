"""Solves Sudoku grids, and makes puzzles with exactly one solution.

A grid is a tuple of `size * size` digits, row after row, with 0 for a blank. Internally, the candidates of a digit are
one integer: bit `i` is set if cell `i` can hold the digit. So a rule acts on many cells at once.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

from hf_credit.environments.randomness import stream

Cells = tuple[int, ...]

BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}
"""Rows and columns of a box, by size."""

FEWEST_CLUES = {4: 4, 6: 8, 9: 17}
"""No puzzle with fewer clues has exactly one solution (9x9: McGuire, Tugemann and Civario, 2014)."""

# The number of grids that a search tries: for one puzzle, and to decide whether a number of blanks is possible.
_PUZZLE_ATTEMPTS = 10
_PROOF_ATTEMPTS = 100


class _Geometry(NamedTuple):
    everything: int
    units: tuple[int, ...]  # each row, column and box, as a set of cells
    others: tuple[int, ...]  # for each cell, all cells but those that share a unit with it


@functools.cache
def _geometry(size: int) -> _Geometry:
    height, width = BOXES[size]
    units = [0] * (3 * size)
    for row, column in itertools.product(range(size), repeat=2):
        bit = 1 << (row * size + column)
        box = row // height * (size // width) + column // width
        for unit in (row, size + column, 2 * size + box):
            units[unit] |= bit
    everything = (1 << size * size) - 1
    others = []
    for cell in range(size * size):
        seen = functools.reduce(int.__or__, (unit for unit in units if unit >> cell & 1))
        others.append(everything & ~seen | 1 << cell)
    return _Geometry(everything, tuple(units), tuple(others))


def _candidates(cells: Cells, size: int) -> list[int]:
    """For each digit, its possible cells given the clues; clashing clues exclude each other."""
    everything, _, others = _geometry(size)
    allowed = [everything] * size
    clues = [0] * size
    clued = 0
    for cell, digit in enumerate(cells):
        if digit:
            allowed[digit - 1] &= others[cell]
            clues[digit - 1] |= 1 << cell
            clued |= 1 << cell
    free = everything & ~clued
    return [cells_of & (free | clue) for cells_of, clue in zip(allowed, clues, strict=True)]


def digits_left(cells: Cells, size: int) -> list[tuple[int, ...]]:
    """For each blank, the digits that its row, column and box lack, in order; for each filled cell its digit, or none
    if it clashes with another cell.

    Args:
        cells: as in `solutions`; the grid need not have a solution.
        size: 4, 6 or 9.
    """
    candidates = list(enumerate(_candidates(cells, size), start=1))
    return [tuple(digit for digit, places in candidates if places >> cell & 1) for cell in range(size * size)]


def _propagate(candidates: list[int], settled: int, geometry: _Geometry) -> int:
    """Applies naked and hidden singles in place until none is left.

    `settled` are the cells whose digit was already removed from their units. Returns it with the new cells, or -1 if a
    cell has no digit left, or a unit no place for a digit.
    """
    everything, units, others = geometry
    while True:
        once = twice = 0
        for cells in candidates:
            twice |= once & cells
            once |= cells
        if once != everything:
            return -1
        naked = everything & ~twice & ~settled
        if naked:
            for digit, cells in enumerate(candidates):
                singles = cells & naked
                while singles:
                    cells &= others[(singles & -singles).bit_length() - 1]
                    singles &= singles - 1
                candidates[digit] = cells
            settled |= naked
            continue
        if settled == everything:
            return settled
        hidden = 0
        for digit, cells in enumerate(candidates):
            for unit in units:
                place = cells & unit
                if not place:
                    return -1
                if not (place & (place - 1) or place & (settled | hidden)):
                    hidden |= place
                    for other in range(len(candidates)):
                        if other != digit:
                            candidates[other] &= ~place
        if not hidden:
            return settled


def _most_constrained(candidates: list[int], settled: int, everything: int) -> int:
    """The unsettled cells with the fewest candidates, as a set."""
    at_least = [everything] + [0] * (len(candidates) + 1)  # at_least[k]: the cells with k candidates or more
    for cells in candidates:
        for count in range(len(candidates), 0, -1):
            at_least[count] |= at_least[count - 1] & cells
    fewest = next(count for count in range(2, len(at_least) - 1) if at_least[count] & ~at_least[count + 1] & ~settled)
    return at_least[fewest] & ~at_least[fewest + 1] & ~settled


def _search(candidates: list[int], settled: int, size: int, rng: random.Random | None = None) -> Iterator[list[int]]:
    """Yields every solution, with `rng` in random order; changes `candidates`."""
    geometry = _geometry(size)
    settled = _propagate(candidates, settled, geometry)
    if settled == -1:
        return
    if settled == geometry.everything:
        yield candidates
        return
    cells = _most_constrained(candidates, settled, geometry.everything)
    cell = cells & -cells
    digits = [digit for digit in range(size) if candidates[digit] & cell]
    if rng is not None:
        rng.shuffle(digits)
    for choice in digits:
        branch = [places if digit == choice else places & ~cell for digit, places in enumerate(candidates)]
        yield from _search(branch, settled, size, rng)


def _grid(candidates: list[int], size: int) -> Cells:
    cells = [0] * (size * size)
    for digit, places in enumerate(candidates, start=1):
        while places:
            cells[(places & -places).bit_length() - 1] = digit
            places &= places - 1
    return tuple(cells)


def solutions(cells: Cells, size: int, limit: int) -> list[Cells]:
    """Up to `limit` full grids that agree with `cells`, by constraint propagation and search.

    Args:
        cells: `size * size` digits in 0..size, row after row, 0 for a blank.
        size: 4, 6 or 9.
        limit: the most solutions; 2 is enough to know whether a puzzle has exactly one.
    """
    search = _search(_candidates(cells, size), 0, size)
    return [_grid(candidates, size) for candidates in itertools.islice(search, limit)]


def solve(cells: Cells, size: int) -> Cells:
    """The only solution of a puzzle; arguments as in `solutions`.

    Raises:
        ValueError: the puzzle has no solution, or more than one.
    """
    found = solutions(cells, size, limit=2)
    if len(found) != 1:
        raise ValueError(
            f"a Sudoku puzzle must have exactly one solution, got one with {'several' if found else 'none'}; "
            "use another puzzle."
        )
    return found[0]


def random_grid(size: int, rng: random.Random) -> Cells:
    """Draws a full grid; every grid is possible, not all equally likely."""
    # Digits are interchangeable, so any first row can be completed.
    first_row = rng.sample(range(1, size + 1), size)
    cells = (*first_row, *[0] * (size * size - size))
    return _grid(next(_search(_candidates(cells, size), 0, size, rng)), size)


def _dig(grid: Cells, size: int, blanks: int, rng: random.Random) -> Cells | None:
    """Removes clues of a full grid in random order while its solution stays unique; `None` if too few can go."""
    cells = list(grid)
    for tried, cell in enumerate(rng.sample(range(len(grid)), len(grid))):
        if blanks == 0 or blanks > len(grid) - tried:
            break
        cells[cell] = 0
        # The solution was unique with this clue, so any other solution has another digit here.
        candidates = _candidates(tuple(cells), size)
        candidates[grid[cell] - 1] &= ~(1 << cell)
        if next(_search(candidates, 0, size), None) is None:
            blanks -= 1
        else:
            cells[cell] = grid[cell]
    return tuple(cells) if blanks == 0 else None


def _search_puzzle(size: int, blanks: int, rng: random.Random, attempts: int) -> Cells | None:
    for _ in range(attempts):
        puzzle = _dig(random_grid(size, rng), size, blanks, rng)
        if puzzle is not None:
            return puzzle
    return None


@functools.cache
def known_puzzle(size: int, blanks: int) -> Cells:
    """A puzzle with exactly one solution and exactly `blanks` blanks, always the same one.

    Raises:
        ValueError: no such puzzle exists, or a bounded search finds none.
    """
    most, rng = size * size - FEWEST_CLUES[size], stream(0, "known puzzle", size, blanks)
    puzzle = _search_puzzle(size, blanks, rng, _PROOF_ATTEMPTS) if 1 <= blanks <= most else None
    if puzzle is None:
        raise ValueError(
            f"blanks must leave a {size}x{size} Sudoku exactly one solution (1 to {most}, and a bounded search must "
            f"find a puzzle), got {blanks}; use {'at least 1' if blanks < 1 else 'fewer'}."
        )
    return puzzle


def relabel(cells: Cells, size: int, rng: random.Random) -> Cells:
    """An equivalent puzzle: digits renamed, rows and columns shuffled within and among their boxes."""

    def lines(thickness: int) -> list[int]:
        bands = rng.sample(range(0, size, thickness), size // thickness)
        return [band + line for band in bands for line in rng.sample(range(thickness), thickness)]

    height, width = BOXES[size]
    names = [0, *rng.sample(range(1, size + 1), size)]
    rows, columns = lines(height), lines(width)
    return tuple(names[cells[row * size + column]] for row in rows for column in columns)


def random_puzzle(size: int, blanks: int, rng: random.Random) -> Cells:
    """Draws a puzzle with exactly one solution and exactly `blanks` blanks.

    Removes clues from random grids. If a bounded number of grids yields no such puzzle, as happens near the possible
    maximum, it is an equivalent of `known_puzzle`.

    Raises:
        ValueError: as in `known_puzzle`.
    """
    known = known_puzzle(size, blanks)
    return _search_puzzle(size, blanks, rng, _PUZZLE_ATTEMPTS) or relabel(known, size, rng)
