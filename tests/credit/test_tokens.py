"""Each token has the advantage of its decision: by hand, and by a loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import token_advantages


def test_every_token_has_the_advantage_of_its_decision_and_others_have_none():
    advantages = torch.tensor([[0.5, -1.0], [2.0, 9.0]])
    # A reply of two tokens, an observation, a reply of one; the second row has one decision and padding.
    decision_of_token = torch.tensor([[0, 0, -1, 1], [0, -1, -1, -1]])
    expected = torch.tensor([[0.5, 0.5, 0.0, -1.0], [2.0, 0.0, 0.0, 0.0]])
    assert torch.equal(token_advantages(advantages, decision_of_token), expected)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 6), st.integers(0, 999))
def test_it_is_what_a_loop_finds(rows, decisions, tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    advantages = torch.randn(rows, decisions, generator=generator, dtype=torch.float64)
    index = torch.randint(-1, decisions, (rows, tokens), generator=generator)
    found = token_advantages(advantages, index)
    assert found.dtype == torch.float64
    for row in range(rows):
        for token in range(tokens):
            own = int(index[row, token])
            assert found[row, token] == (0.0 if own < 0 else advantages[row, own])


def test_the_gradient_reaches_the_advantages_as_often_as_they_have_tokens():
    advantages = torch.zeros(1, 2, requires_grad=True)
    token_advantages(advantages, torch.tensor([[0, 0, 1, -1]])).sum().backward()
    assert advantages.grad.tolist() == [[2.0, 1.0]]


@pytest.mark.parametrize(("wrong", "value"), [([[0, 2]], 2), ([[-2, 0]], -2)])
def test_a_decision_that_is_not_there_is_refused(wrong, value):
    with pytest.raises(ValueError, match=rf"must be an index below 2, or -1 for none, got {value}; number"):
        token_advantages(torch.zeros(1, 2), torch.tensor(wrong))


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("index", [torch.zeros(3, 4, dtype=torch.long), torch.zeros(4, dtype=torch.long)])
def test_other_rows_are_refused(index):
    with pytest.raises(ValueError, match=r"must have the same rows, got \(2, 1\) and \("):
        token_advantages(torch.zeros(2, 1), index)
