"""Solving and making Sudoku grids, compared with brute force without bit masks."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_credit.environments.sudoku_grid import (
    BOXES,
    FEWEST_CLUES,
    known_puzzle,
    random_grid,
    random_puzzle,
    relabel,
    solutions,
    solve,
)

SIZES = sorted(BOXES)

# The puzzle of Wikipedia's article on Sudoku, with its printed solution.
PRINTED = "530070000600195000098000060800060003400803001700020006060000280000419005000080079"
PRINTED_SOLUTION = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


def cells(text):
    return tuple(int(character) for character in text)


def boxes(grid, size):
    height, width = BOXES[size]
    return [
        [grid[(top + row) * size + left + column] for row in range(height) for column in range(width)]
        for top in range(0, size, height)
        for left in range(0, size, width)
    ]


def obeys_the_rules(grid, size):
    rows = [list(grid[start : start + size]) for start in range(0, size * size, size)]
    units = [*rows, *zip(*rows, strict=True), *boxes(grid, size)]
    return all(sorted(unit) == list(range(1, size + 1)) for unit in units)


def every_4x4_grid():
    """By definition: all pairs of half grids, themselves pairs of permutations, that obey the rules together."""
    rows = list(itertools.permutations(range(1, 5)))
    halves = [
        top + bottom
        for top, bottom in itertools.product(rows, repeat=2)
        if all(len(set(box)) == 4 for box in (top[:2] + bottom[:2], top[2:] + bottom[2:]))
    ]
    return [grid for pair in itertools.product(halves, repeat=2) if obeys_the_rules(grid := sum(pair, ()), 4)]


@pytest.fixture(scope="module")
def grids_4x4():
    return every_4x4_grid()


def agreeing(grid, puzzle):
    return all(clue in (0, digit) for clue, digit in zip(puzzle, grid, strict=True))


def test_the_empty_4x4_grid_has_its_288_solutions(grids_4x4):
    found = solutions((0,) * 16, 4, limit=1000)
    assert len(found) == 288
    assert sorted(found) == sorted(grids_4x4)


@given(data=st.data(), clues=st.lists(st.integers(0, 15), max_size=7, unique=True))
@settings(max_examples=150)
def test_4x4_solutions_are_those_of_brute_force(grids_4x4, data, clues):
    puzzle = [0] * 16
    for cell in clues:
        puzzle[cell] = data.draw(st.integers(1, 4))
    expected = [grid for grid in grids_4x4 if agreeing(grid, puzzle)]
    assert sorted(solutions(tuple(puzzle), 4, limit=1000)) == sorted(expected)


def test_a_limit_stops_the_search():
    assert len(solutions((0,) * 81, 9, limit=3)) == 3


def test_a_printed_puzzle_has_its_printed_solution():
    assert solve(cells(PRINTED), 9) == cells(PRINTED_SOLUTION)


def test_a_puzzle_that_singles_do_not_solve_is_searched():
    """Golden Nugget, one of the hardest known 9x9 puzzles; its answer is checked by the rules alone."""
    puzzle = cells("000000039000001005003050800008090006070002000100400000009080050020000600400700000")
    grid = solve(puzzle, 9)
    assert obeys_the_rules(grid, 9)
    assert agreeing(grid, puzzle)


def test_a_full_grid_is_its_own_solution():
    assert solve(cells(PRINTED_SOLUTION), 9) == cells(PRINTED_SOLUTION)


@pytest.mark.parametrize(
    ("puzzle", "got"),
    [
        ((1, 1, *[0] * 14), "none"),  # twice the same digit in a row
        ((1, 2, 3, 0, 0, 0, 0, 4, *[0] * 8), "none"),  # the last cell of row 1 has no digit left
        ((0,) * 16, "several"),
        ((1, 2, 3, 4, *[0] * 12), "several"),
    ],
)
def test_a_puzzle_without_exactly_one_solution_is_refused(puzzle, got):
    with pytest.raises(ValueError, match=rf"^a Sudoku puzzle must have exactly one solution, got one with {got}; use"):
        solve(puzzle, 4)


@pytest.mark.parametrize("size", SIZES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=20)
def test_a_random_grid_obeys_the_rules(size, seed):
    assert obeys_the_rules(random_grid(size, random.Random(seed)), size)


def test_random_grids_reach_every_4x4_grid(grids_4x4):
    rng = random.Random(0)
    assert {random_grid(4, rng) for _ in range(6000)} == set(grids_4x4)


@pytest.mark.parametrize(
    ("size", "blanks"), [(4, 1), (4, 8), (4, 12), (6, 18), (6, 26), (9, 1), (9, 40), (9, 54), (9, 58)]
)
def test_a_random_puzzle_has_exactly_the_given_blanks_and_one_solution(size, blanks):
    for seed in range(4):
        puzzle = random_puzzle(size, blanks, random.Random(seed))
        assert puzzle.count(0) == blanks
        assert len(solutions(puzzle, size, limit=2)) == 1


def test_4x4_puzzles_have_one_solution_by_brute_force_too(grids_4x4):
    for seed in range(40):
        puzzle = random_puzzle(4, 12, random.Random(seed))
        assert sum(agreeing(grid, puzzle) for grid in grids_4x4) == 1


@pytest.mark.parametrize("size", SIZES)
def test_puzzles_depend_only_on_the_generator(size):
    def made(seed):
        return random_puzzle(size, 8, random.Random(seed))

    assert made(1) == made(1)
    assert made(1) != made(2)


@pytest.mark.parametrize("size", SIZES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=20)
def test_a_relabelled_puzzle_keeps_its_blanks_and_its_unique_solution(size, seed):
    puzzle = known_puzzle(size, size * 2)
    disguised = relabel(puzzle, size, random.Random(seed))
    assert disguised.count(0) == puzzle.count(0)
    assert len(solutions(disguised, size, limit=2)) == 1


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("beyond", [-1, 0, "one too many", "all"])
def test_numbers_of_blanks_out_of_range_are_refused(size, beyond):
    most = size * size - FEWEST_CLUES[size]
    blanks = {"one too many": most + 1, "all": size * size}.get(beyond, beyond)
    with pytest.raises(ValueError, match=rf"^blanks must leave a {size}x{size} Sudoku .* got {blanks}; use "):
        known_puzzle(size, blanks)


def test_a_number_of_blanks_that_the_bounded_search_does_not_reach_is_refused():
    with pytest.raises(ValueError, match=r"got 64; use fewer\.$"):
        known_puzzle(9, 64)


def test_no_4x4_puzzle_has_three_clues(grids_4x4):
    """The bound itself: three clues always leave several grids (digits renamed so that clues count up from 1)."""
    for places in itertools.combinations(range(16), 3):
        for digits in [(1, 1, 1), (1, 1, 2), (1, 2, 1), (1, 2, 2), (1, 2, 3)]:
            puzzle = [0] * 16
            for place, digit in zip(places, digits, strict=True):
                puzzle[place] = digit
            assert sum(agreeing(grid, puzzle) for grid in grids_4x4) != 1
