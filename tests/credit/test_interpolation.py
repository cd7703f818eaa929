"""TROLL's projection against numbers worked out by hand, finite differences and an independent optimiser."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from hf_credit.credit import divergence, interpolated_logprobs

RADII = st.sampled_from([0.001, 0.05, 0.5])
LOGITS = st.lists(st.integers(-400, 400).map(lambda tenths: tenths / 10), min_size=5, max_size=5)


def normalised(rows):
    return torch.log_softmax(torch.tensor(rows, dtype=torch.float64), dim=-1)


def drawn(seed, tokens, top, spread):
    generator = torch.Generator().manual_seed(seed)
    old = torch.log_softmax(torch.randn(tokens, top, dtype=torch.float64, generator=generator) * spread, -1)
    noise = torch.randn(tokens, top, dtype=torch.float64, generator=generator) * spread
    return torch.log_softmax(old + noise, -1), old


def test_half_way_between_even_odds_and_nine_to_one_are_three_to_one():
    # The geometric mean of (1/2, 1/2) and (9/10, 1/10) is (3/4, 1/4), 3/4 log 3/2 + 1/4 log 1/2 from the first.
    radius = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    old, new = torch.tensor([[0.5, 0.5]]).double().log(), torch.tensor([[0.9, 0.1]]).double().log()
    assert interpolated_logprobs(new, old, radius).exp().tolist()[0] == pytest.approx([0.75, 0.25], abs=1e-9)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(LOGITS, LOGITS), min_size=1, max_size=6), RADII)
def test_it_is_a_distribution_on_the_border_of_the_region_and_between_the_two(rows, radius):
    new, old = normalised([one for one, _ in rows]), normalised([other for _, other in rows])
    found = interpolated_logprobs(new, old, radius)
    assert torch.allclose(found.exp().sum(1), torch.ones(len(rows), dtype=torch.float64), atol=1e-9)
    before, after = divergence(new, old), divergence(found, old)
    assert torch.allclose(after, before.clamp(max=radius), atol=1e-9)
    # log q - log p = w (log pi - log p) + constant
    ahead, moved = new - old, found - old
    ahead, moved = ahead - ahead[:, :1], moved - moved[:, :1]
    share = (ahead * moved).sum(1) / ahead.square().sum(1).clamp(min=1e-300)
    assert torch.allclose(moved, share[:, None] * ahead, atol=1e-6)
    assert bool(((share >= 0) & (share <= 1 + 1e-9)).all())


def test_a_distribution_inside_the_region_stays_as_it_is():
    old, new = normalised([[0.0, 1.0, 2.0]]), normalised([[0.1, 1.0, 2.0]])
    assert interpolated_logprobs(new, old, 0.05) is new


def test_it_agrees_with_a_general_optimiser():
    new, old = drawn(0, 4, 6, 1.5)
    found = interpolated_logprobs(new, old, 0.05)
    for own, target, start in zip(found.exp().tolist(), new, old, strict=True):

        def to(other, q):
            return float((torch.tensor(q) * (torch.tensor(q).log() - other)).sum())

        best = minimize(
            lambda q, target=target: to(target, q),
            start.exp().numpy(),
            bounds=[(1e-9, 1.0)] * 6,
            constraints=[
                {"type": "eq", "fun": lambda q: q.sum() - 1},
                {"type": "ineq", "fun": lambda q, start=start: 0.05 - to(start, q)},
            ],
            options={"maxiter": 500, "ftol": 1e-14},
        )
        assert own == pytest.approx(best.x.tolist(), abs=1e-4)


def test_gradients_go_through_it():
    new, old = drawn(1, 3, 5, 1.0)
    radii = torch.tensor([0.01, 0.05, 10.0], dtype=torch.float64)  # the last is inside
    new.requires_grad_()
    assert torch.autograd.gradcheck(lambda given: interpolated_logprobs(given, old, radii), (new,), atol=1e-6)


@pytest.mark.parametrize("spread", [0.5, 5.0, 50.0])
def test_single_precision_keeps_its_type_its_radius_and_finite_gradients(spread):
    new, old = (given.float() for given in drawn(3, 64, 256, spread))
    new.requires_grad_()
    found = interpolated_logprobs(new, old, 0.05)
    assert found.dtype == torch.float32
    assert float(divergence(found.detach(), old).max()) < 0.0501
    found.sum().backward()
    assert bool(new.grad.isfinite().all())


def test_what_is_not_possible_is_refused():
    new = normalised([[0.0, 1.0]])
    with pytest.raises(ValueError, match=r"the radius must be above 0, got 0.0"):
        interpolated_logprobs(new, new, 0.0)
    with pytest.raises(ValueError, match=r"logprobs must be finite, got -inf"):
        interpolated_logprobs(torch.tensor([[0.0, -math.inf]]).double(), new, 0.1)
