"""Credit at forks against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from hf_credit.credit import branch_advantages, full_mean


def test_the_worked_example():
    # root -> v1 (leaves 1 and 0), v2 -> a chain that ends with 0: values .5 and 0, and .25 at the root
    parents = torch.tensor([-1, 0, 1, 1, 0, 4])
    found, siblings = branch_advantages(parents, torch.tensor([9.0, 9.0, 1.0, 0.0, 9.0, 0.0]))
    assert found.tolist() == [0, 0.25, 0.5, -0.5, -0.25, 0]
    assert siblings.tolist() == [0, 2, 2, 2, 2, 1]


def test_a_child_weighs_the_same_however_many_leaves_are_under_it():
    parents = torch.tensor([-1, 0, 0, 2, 2, 2])
    found, _ = branch_advantages(parents, torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 3.0], dtype=torch.float64))
    assert found.tolist() == [0, 0, 0, -1, -1, 2]


def test_a_tree_of_one_level_is_the_full_mean():
    outcomes = torch.tensor([0.0, 1.0, 0.25, 0.5])
    found, _ = branch_advantages(torch.tensor([-1, 0, 0, 0]), outcomes)
    torch.testing.assert_close(found[1:], full_mean(outcomes[1:], torch.zeros(3).long()))


def test_several_roots_do_not_meet():
    found, siblings = branch_advantages(torch.tensor([-1, 0, -1, 2, 0]), torch.tensor([0, 1, 0, 5, 3]))
    assert found.tolist() == [0, -1, 0, 0, 1]
    assert siblings.tolist() == [0, 2, 0, 1, 2]


def test_equal_leaves_get_exactly_nothing():
    found, _ = branch_advantages(torch.tensor([-1, 0, 0, 0, 1, 1, 1]), torch.full((7,), 0.1, dtype=torch.float64))
    assert found.tolist() == [0] * 7
    assert branch_advantages(torch.zeros(0).long(), torch.zeros(0))[0].shape == (0,)


def test_a_child_before_its_parent_is_refused():
    with pytest.raises(ValueError, match="before its children"):
        branch_advantages(torch.tensor([1, -1]), torch.zeros(2))
