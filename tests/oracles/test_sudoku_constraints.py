"""The Sudoku oracle on positions a reader can check by eye."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hf_credit.environments.sudoku import Sudoku, SudokuState, solution_of
from hf_credit.oracles import Oracle, make
from hf_credit.oracles.sudoku_constraints import SudokuConstraintsOracle

# 1 2 | 3 4
# 3 4 | 1 2
# ---------
# 2 1 | 4 3
# 4 . | 2 .     the blanks are 3 and 1
GIVENS = "1234341221434.2."


def state(cells=GIVENS, status="active"):
    return SudokuState(seed=0, status=status, givens=GIVENS, cells=cells)


def test_it_is_made_by_name():
    oracle = make("sudoku_constraints")
    assert isinstance(oracle, SudokuConstraintsOracle)
    assert isinstance(oracle, Oracle)


def test_valid_is_the_solutions_digit_in_every_empty_cell():
    assert SudokuConstraintsOracle().valid_actions(state()) == {"fill 4 2 3", "fill 4 4 1"}


def test_a_digit_that_breaks_no_rule_yet_is_still_wrong():
    """Row 1, column 1 could hold 1 or 2 by its row, column and box, but only 1 leads to the solution."""
    #  . . | 3 4
    #  3 4 | . .
    #  2 . | 4 3
    #  4 3 | 2 .
    environment = Sudoku(size=4)
    start = environment.initial_state({"puzzle": "..3434..2.43432."}, 0)
    oracle = SudokuConstraintsOracle()
    assert oracle.score(start, "fill 1 1 1") == 1.0
    assert oracle.score(start, "fill 1 1 2") == 0.0


def test_a_wrong_fill_does_not_change_the_valid_fills_elsewhere():
    assert SudokuConstraintsOracle().valid_actions(state(cells="123434122143412.")) == {"fill 4 4 1"}


def test_nothing_is_valid_when_the_episode_is_over():
    oracle = SudokuConstraintsOracle()
    assert oracle.valid_actions(state(status="invalid")) == frozenset()
    assert oracle.score(state(status="invalid"), "fill 4 2 3") == 0.0


def test_replies_are_scored_by_their_last_action_tag():
    oracle = SudokuConstraintsOracle()
    assert oracle.score(state(), "<action>fill 4 2 1</action> no, <ACTION> Fill 4  2 3 </ACTION>") == 1.0
    assert oracle.score(state(), "<action>fill 4 2 3</action> no, <action>fill 4 2 1</action>") == 0.0
    assert oracle.score(state(), "fill 1 1 1") == 0.0
    assert oracle.score(state(), "\x00\ud800<action>") == 0.0


@given(seed=st.integers(0, 2**32 - 1), order=st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_following_it_in_any_order_solves_the_puzzle(seed, order):
    environment, oracle = Sudoku(size=6), SudokuConstraintsOracle()
    position = environment.initial_state(environment.sample_task(seed), seed)
    while position.status == "active":
        valid = oracle.valid_actions(position)
        assert valid <= set(environment.legal_actions(position))
        assert len(valid) == position.cells.count(".")
        position = environment.step(position, order.choice(sorted(valid))).state
    assert position.cells == solution_of(position.givens)
    assert environment.outcome(position) == 1.0
