"""The projection against its optimality conditions, finite differences and an independent optimiser."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import lambertw

from hf_credit.credit import divergence, projected_logprobs, top_tokens
from hf_credit.credit.trust_region import _bisected, _lambert

LOGITS = st.integers(-40, 40).map(lambda tenths: tenths / 10)


def normalised(rows):
    return torch.log_softmax(torch.tensor(rows, dtype=torch.float64), dim=-1)


def pairs(size, least=1):
    row = st.lists(LOGITS, min_size=size, max_size=size)
    return st.lists(st.tuples(row, row), min_size=least, max_size=6)


def drawn(seed, tokens, top, spread):
    generator = torch.Generator().manual_seed(seed)
    old = torch.log_softmax(torch.randn(tokens, top, dtype=torch.float64, generator=generator) * spread, -1)
    noise = torch.randn(tokens, top, dtype=torch.float64, generator=generator) * spread
    return torch.log_softmax(old + noise, -1), old


@settings(deadline=None, max_examples=20)
@given(pairs(5), st.sampled_from([0.001, 0.025, 0.5]))
def test_the_projection_is_a_distribution_within_the_region(rows, radius):
    z, p = normalised([new for new, _ in rows]), normalised([old for _, old in rows])
    y = projected_logprobs(z, p, radius)
    assert torch.allclose(y.exp().sum(1), torch.ones(len(rows), dtype=torch.float64), atol=1e-8)
    assert bool((divergence(p, y) <= radius + 1e-8).all())


@settings(deadline=None, max_examples=20)
@given(pairs(5), st.sampled_from([0.001, 0.025, 0.5]))
def test_no_other_distribution_of_the_region_is_nearer(rows, radius):
    """KKT: 2 (y - z) = nu p - kappa q with nu >= 0, in the plane of p and q."""
    z, p = normalised([new for new, _ in rows]), normalised([old for _, old in rows])
    y = projected_logprobs(z, p, radius)
    for own_y, own_z, own_p in zip(y, z, p.exp(), strict=True):
        plane = torch.stack([own_p, -own_y.exp()], dim=1)
        force = 2 * (own_y - own_z)
        found = torch.linalg.lstsq(plane, force[:, None]).solution
        assert torch.allclose((plane @ found).squeeze(1), force, atol=1e-6)
        if not torch.allclose(plane[:, 0], -plane[:, 1], atol=1e-6):  # where p is q, only the difference is told
            assert float(found[0]) >= -1e-6


def test_a_distribution_inside_the_region_stays_as_it_is():
    p = normalised([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    z = normalised([[0.1, 1.0, 2.0], [3.0, 0.0, 0.1]])
    assert float(divergence(p, z).max()) < 0.025
    assert torch.equal(projected_logprobs(z, p, 0.025), z)


def test_only_the_tokens_outside_are_moved():
    p = normalised([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    z = normalised([[0.1, 1.0, 2.0], [0.0, 3.0, 0.0]])
    y = projected_logprobs(z, p, 0.025)
    assert torch.equal(y[0], z[0])
    assert float(divergence(p, y)[1]) == pytest.approx(0.025, abs=1e-10)


def test_two_tokens_have_one_distribution_at_the_radius():
    # KL((1/2, 1/2) || (q, 1 - q)) = -log(4 q (1 - q)) / 2 = 0.1 at q = 1/2 +- sqrt(1/4 - e^-0.2 / 4)
    q = 0.5 + math.sqrt(0.25 - math.exp(-0.2) / 4)
    y = projected_logprobs(normalised([[5.0, 0.0]]), normalised([[0.0, 0.0]]), 0.1)
    assert y.exp().tolist()[0] == pytest.approx([q, 1 - q], abs=1e-9)


def test_it_agrees_with_a_general_optimiser():
    z, p = drawn(0, 4, 6, 1.5)
    y = projected_logprobs(z, p, 0.05)
    for own_y, own_z, own_p in zip(y.tolist(), z.tolist(), p.tolist(), strict=True):
        target, old = torch.tensor(own_z).double(), torch.tensor(own_p).double()
        found = minimize(
            lambda x, target=target: float(((torch.tensor(x) - target) ** 2).sum()),
            old.numpy(),
            constraints=[
                {"type": "eq", "fun": lambda x: float(torch.tensor(x).exp().sum() - 1)},
                {"type": "ineq", "fun": lambda x, old=old: 0.05 - float(divergence(old[None], torch.tensor(x)[None]))},
            ],
            options={"maxiter": 500, "ftol": 1e-12},
        )
        assert own_y == pytest.approx(found.x.tolist(), abs=1e-4)


def test_gradients_go_through_it():
    z, p = drawn(1, 3, 5, 1.0)
    radii = torch.tensor([0.01, 0.025, 10.0], dtype=torch.float64)  # the last is inside
    z.requires_grad_()
    assert torch.autograd.gradcheck(lambda given: projected_logprobs(given, p, radii), (z,), atol=1e-5)


@pytest.mark.parametrize("spread", [1.0, 8.0])
def test_bisection_finds_what_newtons_method_finds(spread):
    z, p = drawn(2, 5, 7, spread)
    radii = torch.full((5,), 0.025, dtype=torch.float64)
    outside = divergence(p, z) > radii
    z, p, radii = z[outside], p[outside], radii[outside]
    assert torch.allclose(projected_logprobs(z, p, radii), _bisected(z, p.exp(), p, radii)[0], atol=1e-6)


def test_lamberts_w_is_scipys():
    c = torch.tensor([[-30.0, -2.0, 0.0, 1.0, 20.0, 300.0]], dtype=torch.float64)
    for kappa in (1e-12, 0.5, 3.0, 1e6):
        y = _lambert(c, torch.tensor([kappa], dtype=torch.float64))
        for own, start in zip(y[0].tolist(), c[0].tolist(), strict=True):
            expected = start - lambertw(kappa * math.exp(start) / 2).real
            assert own == pytest.approx(expected, abs=1e-9, rel=1e-9)


def test_single_precision_keeps_its_type_and_its_radius():
    z, p = (given.float() for given in drawn(3, 8, 32, 2.0))
    y = projected_logprobs(z, p, 0.025)
    assert y.dtype == torch.float32
    assert float(divergence(p, y).max()) < 0.0251


def test_the_top_of_a_vocabulary_keeps_its_order_and_tells_its_mass():
    logprobs = torch.tensor([[0.5, 0.1, 0.3, 0.1]], dtype=torch.float64).log()
    ids, top, mass = top_tokens(logprobs, 2)
    assert ids.tolist() == [[0, 2]]
    assert top.exp().tolist()[0] == pytest.approx([0.625, 0.375])
    assert mass.tolist() == pytest.approx([0.8])


def test_the_whole_distribution_is_as_far_as_eq_9_says():
    """Keeping the tail, KL(p || p_new) = alpha KL(p_M || q)."""
    old = torch.log_softmax(torch.arange(6, dtype=torch.float64), 0)[None]
    ids, top, mass = top_tokens(old, 3)
    z = torch.log_softmax(top.flip(1), -1)
    y = projected_logprobs(z, top, 0.025 / mass)
    new = old.clone().scatter(1, ids, y + mass.log()[:, None])
    assert float(new.exp().sum()) == pytest.approx(1)
    assert float(divergence(old, new)) == pytest.approx(0.025)


def test_what_is_not_possible_is_refused():
    z = normalised([[0.0, 1.0]])
    with pytest.raises(ValueError, match=r"the radius must be above 0, got 0.0"):
        projected_logprobs(z, z, 0.0)
    with pytest.raises(ValueError, match=r"old_logprobs must be finite, got -inf"):
        projected_logprobs(z, torch.tensor([[0.0, -math.inf]]).double(), 0.1)
    with pytest.raises(ValueError, match=r"M must be from 1 to the vocabulary's 2 tokens, got 3"):
        top_tokens(z, 3)
