"""What a team gains by an agent, shaped."""

from __future__ import annotations

from math import exp, tanh

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import (
    allocated_advantages,
    bonus_rewards,
    fused_scores,
    group_advantages,
    shaped_contributions,
    standardised,
    trust,
)


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
