"""Integers, booleans, half and double precision give every estimator the credit that single precision gives it."""

from __future__ import annotations

import pytest
import torch

from hf_credit.credit import (
    clipped_value_errors,
    discounted_returns,
    full_mean,
    generalized_advantages,
    leave_one_out,
    sampling_ratio,
    trajectory_advantages,
    turn_group_advantages,
    value_differences,
)

GROUPS = torch.tensor([0, 0, 0, 1, 1])
MASK = torch.tensor([[True, True, False], [True, True, True]])
ROWS = [[1, 0, 1], [1, 1, 0]]
OTHER_ROWS = [[0, 1, 1], [1, 0, 1]]


def cast(numbers, dtype):
    return torch.tensor(numbers).to(dtype)


# Each of 0 and 1 alone, which every dtype holds exactly, with `mask` in the estimators that take one.
ESTIMATORS = {
    "leave_one_out": lambda dtype, mask: leave_one_out(cast([1, 0, 0, 1, 0], dtype), GROUPS),
    "full_mean": lambda dtype, mask: full_mean(cast([1, 0, 0, 1, 0], dtype), GROUPS),
    "turn_group_advantages": lambda dtype, mask: turn_group_advantages(cast(ROWS, dtype), mask, min_active=1),
    "trajectory_advantages": lambda dtype, mask: trajectory_advantages(cast([1, 0], dtype), mask[:, 0]),
    "generalized_advantages": lambda dtype, mask: generalized_advantages(
        cast(ROWS, dtype), cast(OTHER_ROWS, dtype), mask, 0.9, 0.5
    ),
    "discounted_returns": lambda dtype, mask: discounted_returns(cast(ROWS, dtype), mask, 0.3),
    "value_differences": lambda dtype, mask: value_differences(cast(ROWS, dtype), cast([0, 1], dtype), mask),
    "clipped_value_errors": lambda dtype, mask: clipped_value_errors(
        cast(ROWS, dtype), cast(OTHER_ROWS, dtype), cast(OTHER_ROWS, dtype), 0.3
    )[0],
    "sampling_ratio": lambda dtype, mask: sampling_ratio(cast(ROWS, dtype), cast(OTHER_ROWS, dtype), mask),
}
MASKED = [name for name in ESTIMATORS if name not in ("leave_one_out", "full_mean", "clipped_value_errors")]
IN_SINGLE_PRECISION_AT_LEAST = ("clipped_value_errors",)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_integers_and_booleans_are_credited_as_the_same_numbers_in_floating_point(name, dtype):
    expected, credited = ESTIMATORS[name](torch.float32, MASK), ESTIMATORS[name](dtype, MASK)
    assert expected.abs().max() > 0
    assert credited.dtype == torch.float32
    torch.testing.assert_close(credited, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_floating_dtype_is_kept_and_computed_in_single_precision_at_least(name, dtype):
    expected, credited = ESTIMATORS[name](torch.float64, MASK), ESTIMATORS[name](dtype, MASK)
    widened = torch.promote_types(dtype, torch.float32)
    assert credited.dtype == (widened if name in IN_SINGLE_PRECISION_AT_LEAST else dtype)
    torch.testing.assert_close(credited, expected.to(widened).to(credited.dtype), rtol=1e-6, atol=0)


def test_half_precision_does_not_round_on_the_way():
    # 2048 + 1 is 2048 in half precision: added up there, the ones would be lost.
    rewards = torch.tensor([[1.0] * 4 + [2048.0]], dtype=torch.float16)
    assert discounted_returns(rewards, torch.ones(1, 5, dtype=torch.bool), 1.0)[0, 0] == 2052


def test_integers_take_the_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        credited = leave_one_out(torch.tensor([1, 0, 0, 1]), torch.zeros(4, dtype=torch.long))
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(credited, torch.tensor([2 / 3, -2 / 3, -2 / 3, 2 / 3], dtype=torch.float64))


def test_nothing_active_gives_zeros_of_a_floating_dtype():
    nothing = turn_group_advantages(torch.tensor([[1, 0]]), torch.zeros(1, 2, dtype=torch.bool))
    assert nothing.dtype == torch.float32
    assert nothing.tolist() == [[0, 0]]


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_of_ones_and_zeros_is_a_mask(name, dtype):
    torch.testing.assert_close(ESTIMATORS[name](torch.float32, MASK.to(dtype)), ESTIMATORS[name](torch.float32, MASK))


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_of_other_numbers_is_refused(name):
    with pytest.raises(ValueError, match=r"must be true or false, or 1 or 0, got 2; compare it first\."):
        ESTIMATORS[name](torch.float32, 2 * MASK.long())
