"""Leave-one-out credit against eqs. 13 to 15 and 26 worked by hand, a brute force in fractions, and the bandit."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import full_mean, leave_one_out
from hf_credit.credit.leave_one_out import number_of_others, value_assisted

NAN, INF = math.nan, math.inf

# Multiples of 1/8 are exact in every dtype used here.
RETURNS = st.integers(-80, 80).map(lambda eighths: eighths / 8)
ALTERNATIVES = st.lists(st.tuples(RETURNS, st.sampled_from([-7, 0, 3, 2**62]), st.integers(1, 5)), max_size=12)
EQUALLY_OFTEN = st.lists(st.tuples(RETURNS, st.sampled_from([-7, 0, 3])), max_size=12)


def tensors(alternatives):
    returns, groups, *counts = zip(*alternatives, strict=True) if alternatives else ((), (), ())
    columns = torch.tensor(returns, dtype=torch.float64), torch.tensor(groups, dtype=torch.long)
    return (*columns, *(torch.tensor(column, dtype=torch.long) for column in counts))


def brute_force(alternatives, itself, episodes=None):
    """Credits by the definition, in fractions; `itself`: whether an alternative is part of its own baseline."""
    credits = []
    for j, (value, group, _) in enumerate(alternatives):
        others = [
            (Fraction(r), c)
            for i, (r, g, c) in enumerate(alternatives)
            if g == group and (itself if i == j else not episodes or not episodes[i] & episodes[j])
        ]
        weight = sum(c for _, c in others)
        baseline = sum(r * c for r, c in others) / weight if weight else Fraction(value)
        credits.append(float(Fraction(value) - baseline))
    return torch.tensor(credits, dtype=torch.float64)


def close(result, expected, **options):
    torch.testing.assert_close(result, torch.as_tensor(expected, dtype=result.dtype), **options)


# Numbers worked out by hand


def test_an_alternative_is_compared_with_the_mean_of_the_others_at_its_context():
    returns, groups = torch.tensor([1.0, 0.0, 0.5, 3.0, 5.0]), torch.tensor([7, 7, 7, 2, 2])
    close(leave_one_out(returns, groups), [1 - 0.25, -0.75, 0.0, -2.0, 2.0])
    close(full_mean(returns, groups), [0.5, -0.5, 0.0, -1.0, 1.0])


def test_an_alternative_counts_as_often_as_it_was_replayed():
    # b[0] = (1*0 + 3*0.5)/4 = 3/8;  b[1] = (2*1 + 3*0.5)/5 = 7/10;  b[2] = (2*1 + 1*0)/3 = 2/3;  mean = 3.5/6
    returns, groups = torch.tensor([1.0, 0.0, 0.5]), torch.zeros(3, dtype=torch.long)
    counts = torch.tensor([2, 1, 3])
    close(leave_one_out(returns, groups, counts), [5 / 8, -7 / 10, 1 / 2 - 2 / 3])
    close(full_mean(returns, groups, counts), [5 / 12, -7 / 12, -1 / 12])


def test_an_alternative_without_others_gets_no_credit():
    returns, groups = torch.tensor([4.0, 1.0, 3.0]), torch.tensor([5, -1, -1])
    assert leave_one_out(returns, groups).tolist() == [0, -2, 2]
    assert leave_one_out(returns, groups, torch.tensor([9, 1, 1])).tolist() == [0, -2, 2]
    assert full_mean(returns, groups).tolist() == [0, -1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_alternatives_have_no_credit(dtype):
    empty, groups = torch.zeros(0, dtype=dtype), torch.zeros(0, dtype=torch.long)
    for credit in leave_one_out, full_mean:
        assert credit(empty, groups).shape == (0,)
        assert credit(empty, groups, groups).dtype == dtype
    assert leave_one_out(empty, groups, episodes=torch.zeros(0, 2, dtype=torch.long)).shape == (0,)


# Laws


@given(ALTERNATIVES)
def test_credits_equal_the_definition(alternatives):
    returns, groups, counts = tensors(alternatives)
    close(leave_one_out(returns, groups, counts), brute_force(alternatives, itself=False), rtol=1e-12, atol=1e-12)
    close(full_mean(returns, groups, counts), brute_force(alternatives, itself=True), rtol=1e-12, atol=1e-12)


@given(ALTERNATIVES, st.data())
def test_alternatives_that_share_an_episode_are_in_no_baseline_of_each_other(alternatives, data):
    own = st.sets(st.integers(0, 8), min_size=1, max_size=2)
    episodes = [data.draw(own) for _ in alternatives]
    numbers = torch.tensor([(*sorted(one), -1)[:2] for one in episodes], dtype=torch.long).reshape(-1, 2)
    returns, groups, *counts = tensors(alternatives or [])
    found = leave_one_out(returns, groups, *counts, episodes=numbers)
    close(found, brute_force(alternatives, False, episodes), rtol=1e-12, atol=1e-12)
    close(
        full_mean(returns, groups, *counts, numbers), brute_force(alternatives, True, episodes), rtol=1e-12, atol=1e-12
    )
    shared = [
        sum(g == group and not episodes[i] & episodes[j] for i, (_, g, _) in enumerate(alternatives))
        for j, (_, group, _) in enumerate(alternatives)
    ]
    assert number_of_others(groups, numbers).tolist() == shared


@given(EQUALLY_OFTEN, st.integers(1, 9))
def test_equally_counted_credits_sum_to_zero_and_are_a_multiple_of_those_of_the_full_mean(alternatives, count):
    returns, groups = tensors(alternatives)[:2]
    left_out = leave_one_out(returns, groups, torch.full_like(groups, count))
    whole = full_mean(returns, groups)
    for group in groups.unique():
        size = int((groups == group).sum())
        assert left_out[groups == group].sum().item() == pytest.approx(0, abs=1e-10)
        if size > 1:
            close(left_out[groups == group], size / (size - 1) * whole[groups == group])


@given(ALTERNATIVES)
def test_credits_of_the_full_mean_sum_to_zero_by_count(alternatives):
    returns, groups, counts = tensors(alternatives)
    credits = counts * full_mean(returns, groups, counts)
    for group in groups.unique():
        assert credits[groups == group].sum().item() == pytest.approx(0, abs=1e-10)


@given(ALTERNATIVES, st.randoms(use_true_random=False))
def test_the_order_of_alternatives_does_not_count(alternatives, random):
    order = list(range(len(alternatives)))
    random.shuffle(order)
    returns, groups, counts = tensors(alternatives)
    for credit in leave_one_out, full_mean:
        shuffled = credit(returns[order], groups[order], counts[order])
        close(shuffled, credit(returns, groups, counts)[order], rtol=1e-12, atol=1e-12)


@given(ALTERNATIVES, st.integers(-(2**40), 2**40))
def test_a_shift_of_a_context_does_not_count_however_large(alternatives, shift):
    returns, groups, counts = tensors(alternatives)
    for credit in leave_one_out, full_mean:
        moved = credit(returns + shift * (groups == 3), groups, counts)
        assert torch.equal(moved, credit(returns, groups, counts))


@given(ALTERNATIVES, st.sampled_from([-4.0, -0.5, 0.25, 1024.0]))
def test_credits_scale_with_the_returns(alternatives, scale):
    returns, groups, counts = tensors(alternatives)
    for credit in leave_one_out, full_mean:
        scaled = credit(scale * returns, groups, counts)
        close(scaled, scale * credit(returns, groups, counts), rtol=1e-12, atol=1e-12)


@given(st.floats(-1e6, 1e6), st.lists(st.integers(1, 2**40), min_size=1, max_size=9))
def test_equal_returns_earn_exactly_nothing(value, counts):
    returns, counts = torch.full((len(counts),), value), torch.tensor(counts)
    for credit in leave_one_out, full_mean:
        assert not credit(returns, torch.zeros_like(counts), counts).any()


# Numerically safe


def test_a_context_of_huge_returns_leaves_the_credits_of_another_alone():
    returns = torch.tensor([1e12, -1e12, 0.25, 0.0], dtype=torch.float64)
    assert leave_one_out(returns, torch.tensor([1, 1, 0, 0])).tolist() == [2e12, -2e12, 0.25, -0.25]


def test_the_baseline_of_an_alternative_that_holds_almost_every_replay_is_exact():
    returns, groups = torch.tensor([0.3, 0.0, 0.5], dtype=torch.float64), torch.zeros(3, dtype=torch.long)
    counts = torch.tensor([2**50, 1, 1])
    close(leave_one_out(returns, groups, counts)[0], 0.3 - 0.25, rtol=1e-15, atol=0)
    close(leave_one_out(returns[:2], groups[:2], counts[:2]), [0.3, -0.3], rtol=1e-15, atol=0)


def test_small_differences_of_large_float32_returns_survive_many_replays():
    returns = torch.tensor([16777216.0, 16777214.0, 16777212.0])
    groups, counts = torch.zeros(3, dtype=torch.long), torch.tensor([1000, 1000, 1000])
    assert leave_one_out(returns, groups, counts).tolist() == [3, 0, -3]
    assert leave_one_out(returns, groups).dtype == torch.float32


# The policy gradient (eq. 21), by enumeration


@pytest.mark.parametrize("counts", [None, torch.tensor([1, 2, 5])])
def test_the_policy_gradient_is_that_of_the_expected_return(counts):
    gradient, true_gradient = bandit_gradients(lambda returns, groups: leave_one_out(returns, groups, counts))
    close(gradient, true_gradient, rtol=1e-12, atol=1e-12)


def test_the_full_mean_shrinks_the_policy_gradient():
    gradient, true_gradient = bandit_gradients(full_mean)
    close(gradient, (1 - 1 / 3) * true_gradient, rtol=1e-12, atol=1e-12)


def bandit_gradients(credit):
    """The expectation of mean_j A[j] grad log pi(a[j]) over all draws of three of four actions, and grad E[Q]."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.0], dtype=torch.float64, requires_grad=True)
    action_values = torch.tensor([1.0, 0.25, -0.5, 2.0], dtype=torch.float64)
    policy = logits.softmax(dim=0)
    (true_gradient,) = torch.autograd.grad(policy @ action_values, logits, retain_graph=True)
    surrogate = torch.zeros((), dtype=torch.float64)
    for actions in itertools.product(range(4), repeat=3):
        drawn = list(actions)
        credits = credit(action_values[drawn], torch.zeros(3, dtype=torch.long))
        surrogate = surrogate + policy[drawn].prod().detach() * (credits * policy[drawn].log()).mean()
    (gradient,) = torch.autograd.grad(surrogate, logits)
    return gradient, true_gradient


# Refused


@pytest.mark.parametrize("credit", [leave_one_out, full_mean])
class TestRefused:
    @pytest.mark.parametrize("value", [NAN, INF, -INF])
    def test_a_return_that_is_not_finite(self, credit, value):
        with pytest.raises(ValueError, match="returns must be finite"):
            credit(torch.tensor([1.0, value]), torch.tensor([0, 1]))

    @pytest.mark.parametrize("count", [0, -3])
    def test_a_count_below_one(self, credit, count):
        with pytest.raises(ValueError, match=f"counts must be at least 1, got {count}; leave out"):
            credit(torch.tensor([1.0, 2.0]), torch.tensor([0, 0]), torch.tensor([4, count]))

    @pytest.mark.usefixtures("unchecked_shapes")
    def test_shapes_that_differ(self, credit):
        with pytest.raises(ValueError, match=r"got \(3,\), \(2,\) and \(2,\); give one entry"):
            credit(torch.zeros(3), torch.tensor([0, 0]))
        with pytest.raises(ValueError, match=r"got \(2,\), \(2,\) and \(1,\); give one entry"):
            credit(torch.zeros(2), torch.tensor([0, 0]), torch.tensor([1]))
        with pytest.raises(ValueError, match=r"got \(1, 2\), \(1, 2\) and \(1, 2\); give one entry"):
            credit(torch.zeros(1, 2), torch.tensor([[0, 0]]))


def test_the_baseline_of_a_critic_is_the_mean_of_the_others_predictions() -> None:
    returns, values = torch.tensor([1.0, 0.0, 0.5]), torch.tensor([0.8, 0.2, 0.5])
    group, counts = torch.zeros(3, dtype=torch.long), torch.tensor([2, 1, 3])
    # The others' returns: (0 + 3 x .5) / 4, (2 + 1.5) / 5, 2 / 3; their predictions: .425, .62, .6.
    halved = value_assisted(returns, values, group, counts, share=0.5)
    assert halved.tolist() == pytest.approx([0.6, -0.66, -0.13333], abs=1e-5)
    assert value_assisted(returns, values, group, counts).tolist() == pytest.approx([0.575, -0.62, -0.1])
