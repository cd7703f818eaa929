"""Turn credit against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from hf_credit.credit import score_deltas, turn_credit

# One rollout of four turns with reward 1, and a sibling of one turn with reward 0 and no score.
SCORES = torch.tensor([[0.0, 9.0, 1.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
KNOWN = torch.tensor([[True, False, True, True], [False] * 4])
ACTIVE = torch.tensor([[True] * 4, [True, False, False, False]])
REWARDS, GROUPS = torch.tensor([1.0, 0.0]), torch.tensor([4, 4])


def test_a_turn_changes_the_last_score_that_is_known():
    assert score_deltas(SCORES, KNOWN).tolist() == [[0, 0, 1, -0.5], [0, 0, 0, 0]]
    whole = torch.tensor([[True, False, True]]), torch.tensor([[True, True, True]])
    assert score_deltas(*whole).tolist() == [[0, -1, 1]]
    assert score_deltas(torch.zeros(0, 1), torch.zeros(0, 1).bool()).shape == (0, 1)


def test_the_worked_example():
    deltas = score_deltas(SCORES, KNOWN)
    found = turn_credit(deltas, REWARDS, ACTIVE, torch.ones(2, 4), GROUPS, gamma=0.5)
    # c = .110, .219, .438, -.267 with mean .125; level .75
    expected = torch.tensor([[0.734, 0.844, 1.063, 0.358], [-0.75, 0, 0, 0]])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def test_without_spreading_every_turn_has_the_level_and_it_holds_the_deltas():
    found = turn_credit(score_deltas(SCORES, KNOWN), REWARDS, ACTIVE, torch.ones(2, 4), GROUPS, beta=0.0)
    assert found.tolist() == [[0.75] * 4, [-0.75, 0, 0, 0]]


def test_spreading_moves_credit_between_turns_and_none_between_rollouts():
    tokens = torch.tensor([[3, 1, 5, 2], [4, 0, 0, 0]])
    found = turn_credit(score_deltas(SCORES, KNOWN), REWARDS, ACTIVE, tokens, GROUPS, gamma=0.7, beta=2.0)
    means = (found * tokens).sum(dim=1) / tokens.sum(dim=1)
    torch.testing.assert_close(means, torch.tensor([0.75, -0.75]))


def test_equal_rollouts_and_no_rollouts_get_nothing():
    found = turn_credit(
        torch.zeros(3, 2), torch.full((3,), 0.1), torch.ones(3, 2).bool(), torch.ones(3, 2), torch.zeros(3).long()
    )
    assert not found.any()
    empty = torch.zeros(0, 1)
    assert turn_credit(empty, empty[:, 0], empty.bool(), empty, torch.zeros(0).long()).shape == (0, 1)


@pytest.mark.parametrize("options", [{"gamma": -0.1}, {"beta": -1.0}])
def test_what_is_not_possible_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        turn_credit(torch.zeros(2, 4), REWARDS, ACTIVE, torch.ones(2, 4), GROUPS, **options)
