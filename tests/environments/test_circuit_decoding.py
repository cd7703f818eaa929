"""Formulas: their truth tables, compared with Python, and invalid text. CircuitDecoding: queries, answers, prompts."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments.circuit_decoding import CircuitDecoding, draw_formulas, output, truth_table
from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import task_seed


@st.composite
def formulas(draw):
    parts = st.recursive(
        st.sampled_from(["x0", "x1", "x2"]),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join),
            inner.map("not {}".format),
            inner.map("({})".format),
        ),
        max_leaves=8,
    )
    return draw(parts)


def by_python(formula, inputs):
    """The truth table by Python's interpreter, only for formulas of these tests."""
    table = 0
    for bits in product((False, True), repeat=inputs):
        table = 2 * table + bool(eval(formula, {}, {f"x{place}": bit for place, bit in enumerate(bits)}))
    return table


@given(formulas())
def test_operators_bind_as_in_python(formula):
    assert truth_table(formula, 3) == by_python(formula, 3)


@pytest.mark.parametrize(
    ("formula", "table"), [("x0", 0b0011), ("x1", 0b0101), ("not x0 and x1", 0b0100), ("x0 or not(x1)", 0b1011)]
)
def test_rows_count_up_with_x0_in_front(formula, table):
    assert truth_table(formula, 2) == table


@pytest.mark.parametrize(
    "text",
    [
        *("", "x0 x1", "x0 and", "(x0", "x0)", "not", "x2", "x0 or or x1", "()", "x00", "notx0", "x0andx1", "True"),
        *(None, 1, "__import__('os').system('true')", "x0 if x1 else x0", "(" * 900 + "x0", "x0" + " and x0" * 200),
    ],
)
def test_text_that_is_not_a_formula_is_refused_and_never_run(text):
    with pytest.raises(
        ValueError, match=r"^a formula must be of x0, x1, .* with and, or, not and brackets, in at most"
    ):
        truth_table(text, 2)


@pytest.mark.parametrize(("count", "inputs"), [(2, 1), (14, 2), (200, 3), (200, 4)])
def test_random_formulas_differ_and_none_is_constant(count, inputs):
    drawn = draw_formulas(count, inputs, stream(0, "formulas"))
    tables = {truth_table(formula, inputs) for formula in drawn}
    assert len(drawn) == len(tables) == count
    assert not tables & {0, 2 ** (2**inputs) - 1}


ROW = {"inputs": 3, "candidates": ["x0 and x2", "not x1", "x0 or x1", "x2"], "hidden": [1, 3]}
GAME = CircuitDecoding(candidates=4)
START = GAME.initial_state(ROW, 0)


@pytest.mark.parametrize(
    ("query", "bit"),
    [("A(1, 0, 1)", "1"), ("A(1, 0, 0)", "0"), ("B(0, 1, 0)", "1"), ("B( 0,0 , 1 )", "0"), ("A101", "1")],
)
def test_a_query_returns_the_output(query, bit):
    assert GAME.observe(GAME.step(START, f"<interact>{query}</interact>").state) == bit


def test_brief_feedback_repeats_the_query():
    brief = CircuitDecoding(candidates=4, wording="brief")
    state = brief.step(brief.initial_state(ROW, 0), "interact B010").state
    assert (state.queries, brief.observe(state)) == (("B010",), "B010 1")
    assert output(state, "A111") == 1


@pytest.mark.parametrize(
    "query",
    ["", "C(1, 0, 1)", "A(1, 0)", "A(1, 0, 2)", "A(1, 0, 1, 1)", "a(1, 0, 1)", "A 101", "A(1 0 1)", "A(1, 0, 1"],
)
def test_a_query_that_cannot_be_read_is_invalid(query):
    assert GAME.step(START, f"<interact>{query}</interact>").state.status == "invalid"


@pytest.mark.parametrize(("answer", "reward"), [("1, 3", 1.0), ("1,3", 1.0), ("3, 1", 0.0), ("1, 4", 0.0)])
def test_all_circuits_must_be_correct_and_in_order(answer, reward):
    assert GAME.step(START, f"<answer>{answer}</answer>").reward == reward


def test_the_share_of_correct_circuits_is_an_option():
    share = CircuitDecoding(candidates=4, reward="share")
    state = share.step(share.initial_state(ROW, 0), "answer 1, 4").state
    assert share.outcome(state) == 0.5
    assert share.metrics(state)["success"] == 0.0


@pytest.mark.parametrize("answer", ["", "1", "1, 3, 2", "0, 3", "1, 5", "-1, 3", "01, 3", "1 3", "A=1, B=3", "1.0, 3"])
def test_an_answer_that_cannot_be_read_is_invalid(answer):
    assert GAME.step(START, f"<answer>{answer}</answer>").state.status == "invalid"


def test_the_example_in_the_prompt_is_invalid_as_an_answer():
    game = CircuitDecoding(candidates=14, inputs=3)
    task = {**game.sample_task(0), "hidden": [13, 6]}
    state = game.initial_state(task, 0)
    assert "<answer>13, 6</answer>" in game.observe(state)
    assert game.step(state, "I do not know.").reward == 0.0
    assert game.step(state, "<answer>13, 6</answer>").reward == 1.0


def test_the_prompt_lists_the_candidates_and_not_the_hidden_ones():
    text = GAME.observe(START)
    assert "- There are 2 circuits, labeled A, B.\n" in text
    assert "1: x0 and x2\n2: not x1\n3: x0 or x1\n4: x2\n" in text
    assert GAME.observe(GAME.initial_state({**ROW, "hidden": [2, 2]}, 0)) == text


def test_fixed_candidates_are_the_same_in_all_tasks_and_left_out_when_brief():
    game = CircuitDecoding(inputs=2, candidates=6, fixed=True, wording="brief")
    tasks = [game.sample_task(seed) for seed in range(40)]
    assert len({tuple(task["candidates"]) for task in tasks}) == 1
    assert len({tuple(task["hidden"]) for task in tasks}) > 20
    assert game.observe(game.initial_state(tasks[0], 0)) == "circuits A, B inputs 2 candidates 6"


def test_a_split_repeats_after_its_official_number_of_tasks():
    assert GAME.sample_task(task_seed("train", 0)) == GAME.sample_task(task_seed("train", 1000))
    assert GAME.sample_task(task_seed("held_out", 0)) == GAME.sample_task(task_seed("held_out", 300))
    assert GAME.sample_task(task_seed("held_out", 0)) != GAME.sample_task(task_seed("train", 0))


def test_candidates_of_a_task_differ_and_hidden_ones_may_repeat():
    game = CircuitDecoding()
    tasks = [game.sample_task(seed) for seed in range(60)]
    for task in tasks:
        assert len({truth_table(formula, 3) for formula in task["candidates"]}) == 10
    assert any(task["hidden"][0] == task["hidden"][1] for task in tasks)
    distinct = CircuitDecoding(distinct=True)
    assert all(len(set(distinct.sample_task(seed)["hidden"])) == 2 for seed in range(60))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": 2, "candidates": 15}, "candidates must be from 2 to 14, so that formulas of 2 inputs differ"),
        ({"candidates": 1}, "candidates must be from 2 to 200, so that formulas of 3 inputs differ"),
        ({"candidates": 3, "circuits": 4, "distinct": True}, "and as many as distinct circuits, got 3; change it"),
        ({"candidates": 30, "circuits": 4}, r"candidates \*\* circuits must be at most 100000, got 30 \*\* 4; lower"),
    ],
)
def test_a_bad_option_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CircuitDecoding(**options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": [1, 5]}, "a hidden circuit must be a whole number from 1 to 4, got 5; correct it."),
        ({"hidden": []}, "there must be 1 to 10 hidden circuits and at most 100000 answers, got 0 circuits"),
        ({"candidates": ["x0", "x1", "not not x0", "x2"]}, "must have different truth tables, none of them constant"),
        ({"candidates": ["x0", "x1", "x0 or not x0", "x2"]}, "got 3 such tables of 4 formulas; correct them."),
        (
            {"candidates": ["x0", "x1", "exit()", "x2"]},
            r"a formula must be of x0, x1, .*, got 'exit\(\)'; correct it.",
        ),
        ({"inputs": 9}, "inputs must be a whole number from 1 to 4, got 9; correct it."),
    ],
)
def test_an_invalid_row_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        GAME.initial_state({**ROW, **change}, 0)


def test_hidden_circuits_that_repeat_are_refused_where_they_differ():
    with pytest.raises(
        ValueError, match=r"hidden circuits must differ with distinct=True, got \(2, 2\); correct them"
    ):
        CircuitDecoding(candidates=4, distinct=True).initial_state({**ROW, "hidden": [2, 2]}, 0)
