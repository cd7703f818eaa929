"""The best branching of a walk, against numbers worked out by hand and against every plan that was tried."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import replay_ratio
from hf_credit.credit.replay_allocation import pooled_blocks

NOISE = st.just(0.0) | st.floats(1e-100, 10)  # whose products do not underflow
PROFILES = st.lists(st.tuples(NOISE, st.floats(0.1, 5)), min_size=1, max_size=6)


def columns(pairs):
    noise, tokens = zip(*pairs, strict=True)
    return torch.tensor(noise, dtype=torch.float64), torch.tensor(tokens, dtype=torch.float64)


def cost(noise, tokens, alive):
    """Variance times tokens of a plan, over that without branches."""
    alive = torch.tensor(alive, dtype=torch.float64)
    return float((noise / alive).sum() * (tokens * alive).sum() / (noise.sum() * tokens.sum()))


def test_noise_that_does_not_rise_leaves_nothing_to_gain():
    noise, tokens = columns([(3, 1), (2, 1), (2, 1), (0, 1)])
    assert replay_ratio(noise, tokens) == 1.0


def test_noise_in_proportion_to_depth_leaves_eight_ninths():
    depths = torch.arange(1, 4001, dtype=torch.float64)
    assert replay_ratio(depths, torch.ones(4000)) == pytest.approx(8 / 9, abs=1e-3)


@pytest.mark.parametrize("last", [2, 5, 16])
def test_all_noise_at_the_last_of_t_decisions(last):
    noise, tokens = torch.zeros(last, dtype=torch.float64), torch.ones(last, dtype=torch.float64)
    noise[-1] = 2.0
    for branches in (1, 2, 7):
        plan = [1.0] * (last - 1) + [branches]
        assert cost(noise, tokens, plan) == pytest.approx((last - 1 + branches) / (branches * last))
    assert replay_ratio(noise, tokens) == pytest.approx(1 / last)  # the limit of many branches


def test_two_blocks_by_hand():
    # Means 1 and 4: two branches after the first two depths. (sqrt(2 * 2) + sqrt(4 * 1))^2 / (6 * 3) = 16 / 18.
    noise, tokens = columns([(1.5, 1), (0.5, 1), (4, 1)])
    assert replay_ratio(noise, tokens) == pytest.approx(16 / 18)
    assert cost(noise, tokens, [1, 1, 2]) == pytest.approx(16 / 18)


@given(PROFILES)
def test_no_plan_of_whole_branches_is_below_the_ratio(pairs):
    noise, tokens = columns(pairs)
    if float(noise.sum()) == 0:
        return
    plans = itertools.combinations_with_replacement((1, 2, 3, 4), len(pairs))
    assert min(cost(noise, tokens, plan) for plan in plans) >= replay_ratio(noise, tokens) - 1e-9


@given(PROFILES)
def test_the_best_real_plan_reaches_the_ratio(pairs):
    noise, tokens = columns(pairs)
    blocks = pooled_blocks(zip(noise.tolist(), tokens.tolist(), strict=True))
    if float(noise.sum()) and blocks[0][0]:
        alive = [math.sqrt(b / c) for b, c, size in blocks for _ in range(size)]
        assert alive == sorted(alive)
        assert cost(noise, tokens, alive) == pytest.approx(replay_ratio(noise, tokens))


def test_negative_noise_is_refused():
    with pytest.raises(ValueError, match=r"noise must be finite and at least 0 at every depth, got -1.0"):
        replay_ratio(torch.tensor([-1.0]), torch.tensor([1.0]))


def test_without_noise_or_depths_there_is_nothing_to_gain():
    assert replay_ratio(torch.zeros(3), torch.ones(3)) == 1.0
    assert replay_ratio(torch.zeros(0), torch.zeros(0)) == 1.0
