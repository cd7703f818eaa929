"""What is remembered of streams of numbers, what a team gains by an agent, and the variance of its gradient."""

from __future__ import annotations

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
    group_advantages,
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
