"""Formulas: their truth tables, compared with Python, and invalid text."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments.formulas import draw_formulas, truth_table
from hf_credit.environments.randomness import stream


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


@pytest.mark.parametrize(("count", "inputs"), [(2, 1), (14, 2), (30, 3), (10, 4)])
def test_random_formulas_differ_and_none_is_constant(count, inputs):
    drawn = draw_formulas(count, inputs, stream(0, "formulas"))
    tables = {truth_table(formula, inputs) for formula in drawn}
    assert len(drawn) == len(tables) == count
    assert not tables & {0, 2 ** (2**inputs) - 1}
