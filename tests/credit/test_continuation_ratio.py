"""Ratios worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from hf_credit.credit import continuation_ratio


def logs(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


def test_the_ratio_is_the_product_over_later_action_tokens():
    target, behaviour = logs([0.5, 0.8, 0.9]), logs([0.25, 0.4, 0.1])
    assert continuation_ratio(target, behaviour, torch.tensor([[1, 1, 0]])).item() == pytest.approx(4.0)


def test_it_is_clipped_once_and_not_token_by_token():
    # 10 x 0.1 is 1; clipping each to [0.2, 5] would give 1 by chance of the bounds, so take 10 x 0.1 x 0.1.
    target, behaviour = logs([1.0, 0.05, 0.05]), logs([0.1, 0.5, 0.5])
    assert continuation_ratio(target, behaviour, torch.ones(1, 3)).item() == pytest.approx(0.2)
    assert continuation_ratio(target, behaviour, torch.ones(1, 3), low=0.0).item() == pytest.approx(0.1)
    assert continuation_ratio(target[:, :1], behaviour[:, :1], torch.ones(1, 1)).item() == pytest.approx(5.0)


def test_a_final_step_has_the_ratio_one_whatever_stands_outside_the_mask():
    nothing = torch.full((1, 2), -math.inf)
    assert continuation_ratio(nothing, nothing, torch.zeros(1, 2)).item() == 1.0


def test_what_the_policy_cannot_have_said_is_refused():
    with pytest.raises(ValueError, match="in target must be finite where the mask is true, got -inf"):
        continuation_ratio(torch.tensor([[-math.inf]]), torch.zeros(1, 1), torch.ones(1, 1))
    with pytest.raises(ValueError, match=r"0 <= low <= 1 <= high, got 2.0 and 5"):
        continuation_ratio(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1), low=2.0)
