"""The variance of gradient estimates, worked by hand."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import gradient_variance, optimal_baseline


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def vote(right):
    """Three who are right with a chance: the score of the first one's logit, R, and R without it, ties shared out."""
    rows = []
    for own, *others in itertools.product((1, 0), repeat=3):
        chance = torch.tensor([right if one else 1 - right for one in (own, *others)]).double().prod().item()
        rows.append((chance, own - right, float(own + sum(others) >= 2), sum(others) / 2))
    chances, scores, returns, without = zip(*rows, strict=True)
    return tensor(*scores)[:, None], tensor(*returns), tensor(*without), tensor(*chances)


def test_contributions_to_a_vote_vary_less_than_with_the_best_constant():
    scores, returns, without, chances = vote(0.5)
    # g = +-1/2, so b is the mean outcome 1/2. E[g R] = 1/2 (1/2 3/4) - 1/2 (1/2 1/4) = 1/8, whatever the baseline.
    assert optimal_baseline(scores, returns, chances) == pytest.approx(1 / 2)
    assert gradient_variance(scores, returns, chances) == pytest.approx(1 / 4 * 1 / 2 - 1 / 64)  # 0.1094
    assert gradient_variance(scores, returns - 1 / 2, chances) == pytest.approx(1 / 4 * 1 / 4 - 1 / 64)  # 0.0469
    # Delta is +-1/2 where the others differ, which is half of the time, and 0 where they agree.
    assert gradient_variance(scores, returns - without, chances) == pytest.approx(1 / 4 * 1 / 8 - 1 / 64)  # 0.0156


def test_an_agent_that_is_seldom_right_has_a_high_baseline_and_no_variance_left():
    # Right with 0.2, worth 1: g = 0.8 or -0.2. E[g^2 R] = 0.2 0.64 = 0.128, E[g^2] = 0.128 + 0.8 0.04 = 0.16.
    scores, returns, chances = tensor(0.8, -0.2)[:, None], tensor(1.0, 0.0), tensor(0.2, 0.8)
    best = optimal_baseline(scores, returns, chances)
    assert best == pytest.approx(0.8)
    # g (R - b) is 0.8 0.2 = 0.16 in either case.
    assert gradient_variance(scores, returns - best, chances) == pytest.approx(0.0, abs=1e-12)
    assert gradient_variance(scores, returns, chances) == pytest.approx(0.128 - 0.16**2)


def test_a_free_rider_has_variance_under_shared_reward_alone():
    scores, returns, chances = tensor(1.0, -1.0)[:, None], tensor(1.0, 1.0), tensor(0.5, 0.5)
    assert gradient_variance(scores, returns, chances) == pytest.approx(1.0)
    assert gradient_variance(scores, returns - returns, chances) == 0


@given(
    scores=st.lists(st.tuples(*[st.integers(-3, 3)] * 2), min_size=3, max_size=3).filter(lambda g: any(map(any, g))),
    returns=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    other=st.integers(-3, 3),
)
def test_another_constant_costs_its_squared_distance(scores, returns, other):
    # Eq. 26 holds where scores are centred, as those of a policy are: their mean is taken away.
    g, chances = torch.tensor(scores).double(), tensor(0.5, 0.25, 0.25)
    g = g - (chances[:, None] * g).sum(dim=0)
    if not g.square().sum() > 0:
        return
    r = torch.tensor(returns).double()
    best = optimal_baseline(g, r, chances)
    lost = gradient_variance(g, r - other, chances) - gradient_variance(g, r - best, chances)
    assert lost == pytest.approx(float((chances * g.square().sum(dim=1)).sum()) * (other - best) ** 2, abs=1e-9)


def test_what_is_no_distribution_is_refused():
    with pytest.raises(ValueError, match=r"must be at least 0 and sum to 1, got a minimum of 0\.5 and a sum of 1\.5"):
        gradient_variance(tensor(1.0, 1.0)[:, None], tensor(1.0, 0.0), tensor(1.0, 0.5))
    with pytest.raises(ValueError, match="must not all be 0"):
        optimal_baseline(tensor(0.0)[:, None], tensor(1.0), tensor(1.0))
