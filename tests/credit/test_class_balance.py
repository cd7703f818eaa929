"""Classes that weigh the same, and what that does to probabilities."""

from __future__ import annotations

import math

import pytest
import torch

from hf_credit.credit import balance_log_odds, class_weights


def test_a_rare_event_weighs_as_much_as_all_that_is_not_it() -> None:
    targets = torch.tensor([1.0, 0.0, 0.0, 0.0])
    weights = class_weights(targets, 0.25)
    assert weights.tolist() == pytest.approx([2.0, 2 / 3, 2 / 3, 2 / 3])
    assert weights.mean().item() == pytest.approx(1.0)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_without_what_balance_adds_the_minimum_of_the_weighted_loss_is_the_rate(rate: float) -> None:
    targets = torch.tensor([1.0] * round(10 * rate) + [0.0] * round(10 * (1 - rate)))
    logit = torch.zeros((), requires_grad=True)
    for _ in range(200):
        losses = torch.nn.functional.binary_cross_entropy_with_logits(logit.expand(10), targets, reduction="none")
        (gradient,) = torch.autograd.grad((class_weights(targets, rate) * losses).mean(), logit)
        logit = (logit - 4 * gradient).detach().requires_grad_()
    assert torch.sigmoid(logit.detach() - balance_log_odds(rate)).item() == pytest.approx(rate, abs=1e-3)


def test_events_that_always_or_never_occur_have_finite_weights() -> None:
    for rate in (0.0, 1.0):
        assert class_weights(torch.tensor([0.0, 1.0]), rate).isfinite().all()
        assert math.isfinite(balance_log_odds(rate))
    with pytest.raises(ValueError, match=r"the rate of an event must be in \[0, 1\], got 1.5"):
        balance_log_odds(1.5)
