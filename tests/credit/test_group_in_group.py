"""GiGPO against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from hf_credit.credit import group_in_group_advantages, leave_one_out

# Two rollouts of one prompt, discount .9: the first sees A, B, A and earns 1 at its end, the second A and earns 0.
EXAMPLE = {
    "outcomes": torch.tensor([1.0, 0.0]),
    "groups": torch.tensor([3, 3]),
    "returns": torch.tensor([0.81, 0.9, 1.0, 0.0]),
    "anchors": torch.tensor([7, 8, 7, 7]),
    "rollouts": torch.tensor([0, 0, 0, 1]),
}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"weight": 0.0}, [0.5, 0.5, 0.5, -0.5]),
        ({}, [0.707, 0.5, 0.897, -1.103]),
        ({"by_steps": True}, [0.457, 0.25, 0.647, -1.353]),
        ({"by_steps": True, "normalise": True}, [0.889, 0.5, 1.247, -2.636]),
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
    assert group_in_group_advantages(**whole).tolist() == pytest.approx([5 / 6, 1 / 2, 5 / 6, -7 / 6])


@pytest.mark.parametrize("options", [{"weight": -1.0}, {"eps": 0.0}])
def test_what_is_not_possible_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        group_in_group_advantages(**EXAMPLE, **options)
