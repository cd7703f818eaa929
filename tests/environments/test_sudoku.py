"""The rules of Sudoku as an environment."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments import board_pictures
from hf_credit.environments.sudoku import Sudoku, SudokuState, solution_of
from hf_credit.environments.sudoku_grid import BOXES, digits_left
from hf_credit.oracles.sudoku_constraints import SudokuConstraintsOracle

ORACLE = SudokuConstraintsOracle()

# Printed in Wikipedia's article on Sudoku.
PUZZLE_9 = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
SOLUTION_9 = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


TWO_BLANKS = "1234341221434.2."
"""Missing 3 in row 4, column 2 and 1 in row 4, column 4."""


@pytest.fixture
def small():
    return Sudoku(size=4, blanks=2)


@pytest.fixture
def start(small):
    return small.initial_state({"puzzle": TWO_BLANKS}, 7)


def play(environment, state, *actions):
    transition = None
    for action in actions:
        transition = environment.step(state, action)
        state = transition.state
    return transition


def test_solution_of_a_printed_puzzle():
    assert solution_of(PUZZLE_9) == SOLUTION_9


def test_the_observation_is_a_matrix_with_row_and_column_labels():
    environment = Sudoku(blanks=51)
    assert environment.observe(environment.initial_state({"puzzle": PUZZLE_9}, 0)) == (
        "   C1 C2 C3 C4 C5 C6 C7 C8 C9\n"
        "R1 5 3 . . 7 . . . .\n"
        "R2 6 . . 1 9 5 . . .\n"
        "R3 . 9 8 . . . . 6 .\n"
        "R4 8 . . . 6 . . . 3\n"
        "R5 4 . . 8 . 3 . . 1\n"
        "R6 7 . . . 2 . . . 6\n"
        "R7 . 6 . . . . 2 8 .\n"
        "R8 . . . 4 1 9 . . 5\n"
        "R9 . . . . 8 . . 7 9"
    )


def test_a_picture_shows_the_board_and_its_cells_are_filled_by_name():
    pictured, named = (Sudoku(size=4, blanks=2, notation=notation) for notation in ("picture", "named"))
    state = pictured.initial_state({"puzzle": TWO_BLANKS}, 7)
    shown = [*map(int, "1234341221434"), frozenset({3}), 2, frozenset({1})]
    assert pictured.observe(state) == (board_pictures.sudoku(tuple(shown), (2, 2)),)
    assert pictured.legal_actions(state) == named.legal_actions(replace(state, notation="named"))
    assert ORACLE.valid_actions(state) == {"d2=3", "d4=1"}
    after = pictured.step(state, "d2=3")
    assert after.observation == (board_pictures.sudoku((*shown[:13], 3, *shown[14:]), (2, 2)),)
    assert "The picture shows what they hold" in pictured.instructions


def test_the_instructions_name_the_box_and_the_format():
    text = Sudoku(size=6).instructions
    assert "6x6" in text
    assert "2 rows by 3 columns" in text
    assert "<action>fill 1 2 3</action>" in text


def test_filling_both_blanks_correctly_solves_the_puzzle(small, start):
    first = small.step(start, "fill 4 2 3")
    assert (first.reward, first.terminated, first.state.status) == (0.0, False, "active")
    assert first.state == SudokuState(seed=7, givens=TWO_BLANKS, cells="123434122143432.")
    last = small.step(first.state, "I see it. <action>fill 4 4 1</action>")
    assert (last.reward, last.terminated, last.state.status) == (1.0, True, "finished")
    assert small.metrics(last.state) == {"success": 1.0, "completion": 1.0}
    assert last.info == {"action": "fill 4 4 1"}


def test_a_wrong_digit_stays_and_the_episode_continues(small, start):
    wrong = small.step(start, "fill 4 2 1")
    assert (wrong.reward, wrong.terminated) == (0.0, False)
    assert small.observe(wrong.state).endswith("R4 4 1 2 .")
    last = small.step(wrong.state, "fill 4 4 1")
    assert (last.reward, last.terminated, last.state.status) == (0.0, True, "finished")
    assert small.metrics(last.state) == {"success": 0.0, "completion": 0.5}


@pytest.mark.parametrize(
    ("action", "read"),
    [
        ("fill 1 1 1", "fill 1 1 1"),  # a given, even with its own digit
        ("fill 4 2 5", "fill 4 2 5"),
        ("fill 4 2 0", "fill 4 2 0"),
        ("fill 5 2 3", "fill 5 2 3"),
        ("fill 0 2 3", "fill 0 2 3"),
        ("fill 4 6 3", "fill 4 6 3"),
        ("fill 4 9999 3", "fill 4 9999 3"),
        ("fill 4 2", None),
        ("fill 4 2 3 1", None),
        ("fill 4 2 03", None),
        ("fill 4 2 -3", None),
        ("fill 4 2 3\u0663", None),
        ("place 4 2 3", None),
        ("<action>fill 4 2 3", None),
        ("<action>fill 4 2 3</action> or <action>no</action>", None),
        ("", None),
        ("\x00", None),
        ("\ud800", None),
    ],
)
def test_an_illegal_or_unreadable_action_ends_the_episode_as_invalid(small, start, action, read):
    transition = small.step(start, action)
    assert transition.state == SudokuState(seed=7, status="invalid", givens=TWO_BLANKS, cells=TWO_BLANKS)
    assert (transition.reward, transition.terminated, transition.info) == (0.0, True, {"action": read})


def test_a_filled_cell_cannot_be_changed(small, start):
    assert play(small, start, "fill 4 2 1", "fill 4 2 3").state.status == "invalid"


def test_nothing_happens_after_the_end(small, start):
    over = play(small, start, "fill 4 2 3", "fill 4 4 1").state
    after = small.step(over, "fill 4 2 1")
    assert (after.state, after.reward, after.terminated) == (over, 0.0, True)


def test_every_digit_in_every_empty_cell_is_legal(small, start):
    assert small.legal_actions(start) == tuple(
        f"fill 4 {column} {digit}" for column in (2, 4) for digit in range(1, 5)
    )


@pytest.mark.parametrize("size", sorted(BOXES))
@given(seed=st.integers(0, 2**32 - 1))
def test_a_task_has_the_given_number_of_blanks_and_turns(size, seed):
    environment = Sudoku(size=size, blanks=6)
    state = environment.initial_state(environment.sample_task(seed), seed)
    assert state.givens.count(".") == environment.max_turns == 6
    for cell, digit in enumerate(solution_of(state.givens)):
        if state.givens[cell] == ".":
            state = environment.step(state, f"fill {cell // size + 1} {cell % size + 1} {digit}").state
    assert environment.metrics(state) == {"success": 1.0, "completion": 1.0}


def test_the_defaults_are_the_papers_9x9_with_40_blanks():
    assert Sudoku().sample_task(0)["puzzle"].count(".") == 40
    assert len(Sudoku().sample_task(0)["puzzle"]) == 81


def test_the_smaller_sizes_have_their_own_default_blanks():
    assert [Sudoku(size=size).blanks for size in (4, 6)] == [8, 18]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 5}, "size must be one of 4, 6, 9, got 5; use one of these."),
        ({"size": "9"}, "size must be one of 4, 6, 9, got '9'; use one of these."),
        ({"size": 4.0}, "size must be one of 4, 6, 9, got 4.0; use one of these."),
        ({"size": [9]}, r"size must be one of 4, 6, 9, got \[9\]; use one of these."),
        ({"notation": "words"}, "notation must be one of grid, named, candidates, picture, got 'words'; pick one."),
        (
            {"notation": ["named"]},
            r"notation must be one of grid, named, candidates, picture, got \['named'\]; did you mean 'named'\?",
        ),
        ({"blanks": 40.0}, "blanks must be a whole number, got 40.0; correct it."),
        ({"blanks": True}, "blanks must be a whole number, got True; correct it."),
        ({"blanks": 65}, "blanks must leave a 9x9 .* got 65; use fewer."),
        ({"size": 4, "blanks": 13}, "blanks must leave a 4x4 .* got 13; use fewer."),
        ({"size": 4, "blanks": 0}, "blanks must be at least 1, got 0; raise it."),
    ],
)
def test_invalid_options_are_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Sudoku(**options)


@pytest.mark.parametrize(
    ("puzzle", "message"),
    [
        (TWO_BLANKS[:-1], "a puzzle of size 4 must be 16 characters out of '.1234', got '1234341221434.2';"),
        (TWO_BLANKS.replace("4", "5"), "a puzzle of size 4 must be 16 characters out of '.1234', got "),
        (TWO_BLANKS.replace(".", "0"), "a puzzle of size 4 must be 16 characters out of '.1234', got "),
        (None, "a puzzle of size 4 must be 16 characters out of '.1234', got None;"),
        ("1234341221434321", "a puzzle must have 1 to 2 blanks, as an episode has 2 turns, got 0;"),
        ("1.34341221434.2.", "a puzzle must have 1 to 2 blanks, as an episode has 2 turns, got 3;"),
        ("1134341221434.2.", "a Sudoku puzzle must have exactly one solution, got one with none;"),
    ],
)
def test_an_invalid_puzzle_is_refused_in_one_sentence(small, puzzle, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        small.initial_state({"puzzle": puzzle}, 0)


def test_a_task_with_several_solutions_is_refused():
    # Rows 1 and 3 can swap 1 and 2 in columns 1 and 2: two grids agree with the clues.
    with pytest.raises(ValueError, match="exactly one solution, got one with several"):
        Sudoku(size=4).initial_state({"puzzle": "..343412..434321"}, 0)


# Cells by name


@pytest.fixture
def named():
    return Sudoku(size=4, blanks=2, notation="named")


def test_named_cells_are_shown_with_their_digits(named):
    assert named.observe(named.initial_state({"puzzle": TWO_BLANKS}, 0)) == (
        "a1=1 a2=2 a3=3 a4=4\nb1=3 b2=4 b3=1 b4=2\nc1=2 c2=1 c3=4 c4=3\nd1=4 d2=. d3=2 d4=."
    )


def test_the_instructions_explain_the_names_and_the_format(named):
    assert "its row, a to d from the top, and its column, 1 to 4 from the left" in named.instructions
    assert "<action>a2=3</action>" in named.instructions
    assert "<action>fill" not in named.instructions


def test_filling_named_cells_correctly_solves_the_puzzle(named):
    start = named.initial_state({"puzzle": TWO_BLANKS}, 7)
    last = play(named, start, "d2=3", "So be it. <ACTION>D4=1</ACTION>")
    assert (last.reward, last.terminated, last.state.status) == (1.0, True, "finished")
    assert last.info == {"action": "d4=1"}
    assert named.observe(last.state).endswith("d1=4 d2=3 d3=2 d4=1")


@pytest.mark.parametrize(
    ("action", "read"),
    [
        ("a1=1", "a1=1"),  # a given, even with its own digit
        ("d2=5", "d2=5"),
        ("d2=0", "d2=0"),
        ("e2=3", "e2=3"),
        ("z9=9", "z9=9"),
        ("d0=3", "d0=3"),
        ("d2=.", None),
        ("d2", None),
        ("d2 = 3", None),
        ("d2=3 d4=1", None),
        ("d02=3", None),
        ("d2=\u0663", None),
        ("d2=3\u0663", None),
        ("fill 4 2 3", None),
        ("", None),
    ],
)
def test_a_name_of_no_empty_cell_ends_the_episode_as_invalid(named, action, read):
    start = named.initial_state({"puzzle": TWO_BLANKS}, 7)
    transition = named.step(start, action)
    assert transition.state == replace(start, status="invalid")
    assert transition.info == {"action": read}


@pytest.mark.parametrize("notation", ["named", "candidates"])
@pytest.mark.parametrize("size", sorted(BOXES))
@given(seed=st.integers(0, 2**32 - 1))
def test_every_notation_is_of_the_same_game(size, notation, seed):
    grid, named = (Sudoku(size=size, blanks=4, notation=one) for one in ("grid", notation))
    task = grid.sample_task(seed)
    assert named.sample_task(seed) == task
    draws = random.Random(seed)
    states = [environment.initial_state(task, seed) for environment in (grid, named)]
    while legal := grid.legal_actions(states[0]):
        pairs = list(zip(legal, named.legal_actions(states[1]), strict=True))
        for fill, cell in pairs:
            _, row, column, digit = fill.split()
            assert cell == f"{'abcdefghi'[int(row) - 1]}{column}={digit}"
        assert {dict(pairs)[fill] for fill in ORACLE.valid_actions(states[0])} == ORACLE.valid_actions(states[1])
        states = [
            environment.step(s, a).state
            for environment, s, a in zip((grid, named), states, draws.choice(pairs), strict=True)
        ]
        assert replace(states[0], notation=notation) == states[1]
    assert grid.metrics(states[0]) == named.metrics(states[1])


# Cells with the digits that are left to them


@pytest.fixture
def pencilled():
    return Sudoku(size=4, blanks=4, notation="candidates")


def test_an_empty_cell_shows_the_candidates_of_its_row_column_and_box(pencilled):
    # a1: 3 and 4 stand in its row, 4 in its column and its box. b1: its row holds 4, 1 and 2. a2 and c1: all but 2.
    start = pencilled.initial_state({"puzzle": "..34.412.1434321"}, 0)
    assert pencilled.observe(start) == (
        "a1?12 a2?2 a3=3 a4=4\nb1?3 b2=4 b3=1 b4=2\nc1?2 c2=1 c3=4 c4=3\nd1=4 d2=3 d3=2 d4=1"
    )


def test_a_wrong_digit_may_leave_a_cell_without_candidates(pencilled):
    start = pencilled.initial_state({"puzzle": "..34.412.1434321"}, 0)
    assert pencilled.step(start, "a1=2").observation.startswith("a1=2 a2? a3=3 a4=4\nb1?3 b2=4 b3=1 b4=2\nc1? c2=1")


def test_the_instructions_explain_the_question_mark(pencilled):
    assert "behind '?' stand the digits that its row, column and box leave an empty cell" in pencilled.instructions
    assert "'.'" not in pencilled.instructions


@given(size=st.sampled_from(sorted(BOXES)), data=st.data())
def test_candidates_conflict_with_no_other_cell(size, data):
    cells = tuple(data.draw(st.lists(st.integers(0, size), min_size=size * size, max_size=size * size)))
    left = digits_left(cells, size)
    height, width = BOXES[size]
    places = [(row, column, row // height, column // width) for row in range(size) for column in range(size)]
    for cell, (row, column, *box) in enumerate(places):
        seen = {
            cells[other]
            for other, (r, c, *b) in enumerate(places)
            if other != cell and (r == row or c == column or b == box)
        }
        own = [cells[cell]] if cells[cell] else range(1, size + 1)
        assert left[cell] == tuple(digit for digit in own if digit not in seen)
