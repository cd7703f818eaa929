"""Advantages within groups, trees and equal states against numbers worked out by hand and the standard library."""

from __future__ import annotations

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import (
    branch_advantages,
    full_mean,
    group_advantages,
    group_in_group_advantages,
    leave_one_out,
    tree_group_advantages,
)

ROLLOUTS = st.lists(st.tuples(st.integers(-80, 80).map(lambda n: n / 8), st.sampled_from([-7, 0, 3])), max_size=12)


def close(result, expected):
    torch.testing.assert_close(result, torch.as_tensor(expected, dtype=result.dtype), rtol=1e-3, atol=1e-3)


def test_an_outcome_is_told_in_standard_deviations_of_its_group():
    # mean 1/4, sample deviation 1/2; mean 1/2, deviation sqrt(1/2)
    outcomes, groups = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 0.0]), torch.tensor([5, 5, 5, 5, 2, 2])
    close(group_advantages(outcomes, groups), [1.5, -0.5, -0.5, -0.5, 0.707, -0.707])


def test_the_batch_scales_all_groups_alike():
    # deviations from the groups' means by that of (1, 0, 3, 0), which is sqrt(2)
    outcomes, groups = torch.tensor([1.0, 0.0, 3.0, 0.0]), torch.tensor([0, 0, 1, 1])
    close(group_advantages(outcomes, groups, "batch"), [0.3536, -0.3536, 1.0607, -1.0607])


def test_without_scale_it_is_the_full_mean():
    outcomes, groups = torch.tensor([1.0, 0.0, 3.0]), torch.tensor([0, 0, 0])
    assert group_advantages(outcomes, groups, "none").tolist() == full_mean(outcomes, groups).tolist()


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_equal_outcomes_and_lone_rollouts_get_exactly_nothing(scale):
    outcomes, groups = torch.tensor([0.1, 0.1, 0.1, 7.0], dtype=torch.float64), torch.tensor([1, 1, 1, 2])
    assert group_advantages(outcomes, groups, scale).tolist() == [0, 0, 0, 0]
    assert group_advantages(outcomes[:0], groups[:0], scale).tolist() == []


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_integers_and_booleans_are_promoted(dtype):
    outcomes = torch.tensor([1, 0, 0, 0], dtype=dtype)
    found = group_advantages(outcomes, torch.zeros(4, dtype=torch.long))
    assert found.dtype == torch.float32
    close(found, [1.5, -0.5, -0.5, -0.5])


@given(ROLLOUTS)
def test_it_is_the_score_of_the_textbook(rollouts):
    outcomes = torch.tensor([value for value, _ in rollouts], dtype=torch.float64)
    groups = torch.tensor([group for _, group in rollouts], dtype=torch.long)
    for (value, group), found in zip(rollouts, group_advantages(outcomes, groups).tolist(), strict=True):
        own = [other for other, its in rollouts if its == group]
        deviation = statistics.stdev(own) if len(own) > 1 else 0.0
        assert found == pytest.approx((value - statistics.fmean(own)) / (deviation + 1e-4), abs=1e-9)


def test_a_leaf_is_compared_within_its_prompt_and_within_its_tree():
    outcomes, groups, trees = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4).long(), torch.tensor([0, 0, 1, 1])
    close(tree_group_advantages(outcomes, groups, trees), [2.207, -1.207, -0.5, -0.5])


def test_a_tree_of_its_own_for_every_leaf_leaves_the_prompt():
    outcomes, groups = torch.tensor([1.0, 0.0, 0.5]), torch.zeros(3).long()
    alone = tree_group_advantages(outcomes, groups, torch.arange(3))
    assert alone.tolist() == group_advantages(outcomes, groups).tolist()


@pytest.mark.parametrize(("options", "told"), [({"scale": "std"}, "'std'"), ({"eps": 0.0}, "got 0.0")])
def test_what_is_not_possible_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        group_advantages(torch.zeros(1), torch.zeros(1).long(), **options)


# Two rollouts of one prompt, discount .9: the first sees A, B, A and earns 1 at its end, the second A and earns 0.
EXAMPLE = {
    "outcomes": torch.tensor([1.0, 0.0]),
    "groups": torch.tensor([3, 3]),
    "returns": torch.tensor([0.81, 0.9, 1.0, 0.0]),
    "anchors": torch.tensor([7, 8, 7, 7]),
    "rollouts": torch.tensor([0, 0, 0, 1]),
}
# In the paper every step is compared as if it were of an episode of its own.
PAPER = {"episodes": torch.arange(4)[:, None]}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"weight": 0.0}, [0.5, 0.5, 0.5, -0.5]),
        # The A's of the first are not compared with each other, only with the second's.
        ({}, [0.905, 0.5, 1.0, -1.103]),
        # The deviation is that of the group, .81, 1 and 0: .531; of outcomes .707.
        ({"normalise": True}, [1.470, 0.707, 1.649, -1.843]),
        (PAPER, [0.707, 0.5, 0.897, -1.103]),
        ({**PAPER, "by_steps": True}, [0.457, 0.25, 0.647, -1.353]),
        ({**PAPER, "by_steps": True, "normalise": True}, [0.889, 0.5, 1.247, -2.636]),
    ],
)
def test_the_worked_example(options, expected):
    torch.testing.assert_close(
        group_in_group_advantages(**EXAMPLE, **options), torch.tensor(expected), rtol=0, atol=6e-4
    )


def test_states_of_their_own_leave_the_comparison_of_episodes():
    alone = group_in_group_advantages(**{**EXAMPLE, "anchors": torch.arange(4)})
    half = leave_one_out(EXAMPLE["outcomes"], EXAMPLE["groups"]) / 2
    assert alone.tolist() == half[EXAMPLE["rollouts"]].tolist()


def test_a_lone_rollout_and_equal_returns_get_nothing():
    lone = torch.tensor([1.0]), torch.tensor([0]), torch.tensor([1.0]), torch.tensor([0]), torch.tensor([0])
    for normalise in False, True:
        assert group_in_group_advantages(*lone, normalise=normalise).tolist() == [0]
        equal = {**EXAMPLE, "outcomes": torch.ones(2), "returns": torch.ones(4)}
        assert group_in_group_advantages(**equal, normalise=normalise).tolist() == [0, 0, 0, 0]


def test_no_steps_have_no_credit():
    nothing, none = torch.zeros(0), torch.zeros(0).long()
    assert group_in_group_advantages(torch.ones(2), torch.zeros(2).long(), nothing, none, none).shape == (0,)
    assert group_in_group_advantages(nothing, none, nothing, none, none, by_steps=True).shape == (0,)


def test_integers_are_promoted():
    whole = {**EXAMPLE, "outcomes": torch.tensor([True, False]), "returns": torch.tensor([1, 1, 1, 0])}
    assert group_in_group_advantages(**whole).tolist() == pytest.approx([1, 1 / 2, 1, -7 / 6])


@pytest.mark.parametrize("options", [{"weight": -1.0}, {"eps": 0.0}])
def test_what_gigpo_cannot_compute_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        group_in_group_advantages(**EXAMPLE, **options)


def test_the_worked_example_of_a_tree():
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
