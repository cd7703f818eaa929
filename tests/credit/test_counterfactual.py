"""What is remembered of streams of numbers, what a team gains by an agent, and the variance of its gradient."""

from __future__ import annotations

import itertools
from math import exp, tanh

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import (
    Moment,
    Moments,
    allocated_advantages,
    bonus_rewards,
    fused_scores,
    gradient_variance,
    group_advantages,
    optimal_baseline,
    shaped_contributions,
    standardised,
    trust,
)

NUMBERS = st.lists(st.floats(-1, 1), min_size=1, max_size=6)


def test_the_first_batch_is_taken_as_it_is_and_the_next_is_averaged_in():
    first = Moments().updated({"a": [0.0, 1.0]}, decay=0.9)
    assert first.of("a") == Moment(mean=0.5, variance=0.25, seen=2)
    second = first.updated({"a": [1.0, 1.0, 1.0]}, decay=0.9)
    # The batch's own variance is 0, though its mean is far from the remembered one.
    assert second.of("a") == Moment(mean=pytest.approx(0.55), variance=pytest.approx(0.225), seen=5)


def test_streams_are_remembered_apart_and_an_empty_batch_changes_nothing():
    known = Moments().updated({"a": [1.0], "b": [2.0]}, 0.5)
    assert known.updated({"a": [], "c": []}, 0.5) == known
    assert known.updated({"a": [3.0]}, 0.5).of("b") == known.of("b") == Moment(2.0, 0.0, 1)
    assert known.of("c") == Moment(0.0, 0.0, 0)


def test_a_small_variance_can_stand_for_a_deviation_of_one():
    assert Moment(0.0, 0.25, 4).deviation(unit_below=0.0) == 0.5
    assert Moment(0.0, 1e-6, 4).deviation(unit_below=1e-6) == 1.0
    assert Moment(0.0, 2e-6, 4).deviation(unit_below=1e-6) == pytest.approx(2e-6**0.5)
    assert Moment(0.0, 0.0, 4).deviation(unit_below=0.0) == 1.0


@given(st.lists(NUMBERS, min_size=1, max_size=5), st.floats(0, 0.99))
def test_the_average_is_the_weighted_sum_of_batch_moments(batches, decay):
    moments = Moments()
    for batch in batches:
        moments = moments.updated({"a": batch}, decay)
    weights = [(1 - decay) * decay ** (len(batches) - 1 - place) for place in range(len(batches))]
    weights[0] = decay ** (len(batches) - 1)
    means = [sum(batch) / len(batch) for batch in batches]
    assert moments.of("a").mean == pytest.approx(sum(w * m for w, m in zip(weights, means, strict=True)), abs=1e-9)
    assert moments.of("a").seen == sum(map(len, batches))


@given(NUMBERS, NUMBERS)
def test_with_a_decay_of_zero_only_the_last_batch_counts(first, last):
    both = Moments().updated({"a": first}, 0.0).updated({"a": last}, 0.0)
    alone = Moments().updated({"a": last}, 0.0)
    assert (both.means, both.variances) == (pytest.approx(alone.means), pytest.approx(alone.variances))


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_a_contribution_is_shaped_by_remembered_moments():
    found = shaped_contributions(tensor(1.0, 0.0, -1.0), mean=0.5, deviation=0.25, alpha=0.5, eps=0.0)
    assert found.tolist() == pytest.approx([tanh(1.0), tanh(-1.0), tanh(-3.0)])


def test_no_contribution_is_no_reward_of_zero_where_the_team_is_used_to_help():
    assert shaped_contributions(tensor(0.0), mean=0.5, deviation=0.5).item() < -0.7


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0.1, 50))
def test_shaped_contributions_are_bounded_and_keep_their_order(mean, deviation, alpha):
    found = shaped_contributions(tensor(-1.0, 0.0, 1.0), mean, deviation, alpha)
    assert found.abs().max() <= 1
    assert found[0] <= found[1] <= found[2]


def test_trust_grows_with_what_the_others_contributed():
    assert trust(0.0, 0.3) == 0.5
    assert trust(0.2, 0.1, eta=2.0, eps=0.0) == pytest.approx(1 / (1 + exp(-4)))
    assert trust(0.3, 0.0, eta=0.0) == 0.5
    assert 0 < trust(-1.0, 0.0) < 1e-8 < trust(1.0, 0.0) < 1  # clipped at 20 deviations


def test_the_last_speakers_reward_is_a_mixture():
    joint, alone = standardised(tensor(1.0, 0.0), 0.5, 0.5, 0.0), standardised(tensor(0.0, 1.0), 0.25, 0.25, 0.0)
    assert fused_scores(joint, alone, 0.75).tolist() == pytest.approx([0.75 - 0.25, -0.75 + 0.75])


def test_with_full_trust_the_last_speakers_advantage_is_that_of_the_shared_outcome():
    outcomes, groups = tensor(1.0, 0.0, 0.0, 1.0, 0.5), torch.tensor([0, 0, 0, 1, 1])
    fused = fused_scores(standardised(outcomes, 0.3, 0.4), tensor(3.0, -1.0, 2.0, 0.0, 5.0), 1.0)
    expected = group_advantages(outcomes, groups, eps=1e-9)
    torch.testing.assert_close(group_advantages(fused, groups, eps=1e-9), expected)


def test_the_teams_advantage_is_allotted_by_contribution():
    outcomes, groups = tensor(1.0, 0.0), torch.tensor([0, 0])
    contributions = torch.tensor([[0.5, 1.5, -1.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    spread = 0.5**0.5
    found = allocated_advantages(outcomes, contributions, groups, eps=1e-12)
    assert found[0].tolist() == pytest.approx([0.25 * 0.5 / spread, 0.75 * 0.5 / spread, 0.0])
    assert found[1].tolist() == [0.0, 0.0, 0.0]  # a failure for which nobody is punished


def test_the_bonus_counts_help_and_hurt_against_the_prompts_mean():
    outcomes, groups = tensor(1.0, 0.0, 1.0, 0.0), torch.tensor([0, 0, 1, 1])
    alone = tensor(0.0, 0.0, 1.0, 1.0)
    assert bonus_rewards(outcomes, alone, groups).tolist() == pytest.approx([1.2, -1.0, 1.0, -1.2])
    balanced = tensor(1.0, 0.0, 1.0, 0.0)
    assert bonus_rewards(outcomes, balanced, groups).tolist() == [1.0, -1.0, 1.0, -1.0]
    difference = bonus_rewards(outcomes, alone, groups, events=False)
    assert difference.tolist() == pytest.approx([1.2, -1.0, 1.0, -1.2])
    assert bonus_rewards(outcomes, balanced, groups, events=False).tolist() == pytest.approx([1.1, -1.1, 1.1, -1.1])


def test_graded_outcomes_are_told_apart_by_the_bonus_reward():
    outcomes, alone, groups = tensor(0.2, 0.4, 0.6, 0.8), tensor(0.2, 0.2, 0.2, 0.2), torch.zeros(4, dtype=torch.long)
    assert bonus_rewards(outcomes, alone, groups).tolist() == pytest.approx([-0.6, -0.2, 0.2 + 0.2, 0.6 + 0.2])
    hurt = bonus_rewards(outcomes, 1 - alone, groups)
    assert hurt.tolist() == pytest.approx([-0.6 - 0.2, -0.2 - 0.2, 0.2, 0.6])
    difference = bonus_rewards(outcomes, alone, groups, events=False)  # s less -0.6, a tenth of it
    assert difference.tolist() == pytest.approx([-0.6, -0.2 + 0.04, 0.2 + 0.08, 0.6 + 0.12])


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
