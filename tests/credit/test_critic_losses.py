"""The clipped value loss worked by hand, and its laws; classes that weigh the same."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import balance_log_odds, class_weights, clipped_value_errors

NAN = math.nan
NUMBERS = st.integers(-40, 40).map(lambda eighths: eighths / 8)
TARGETS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=8)


def loss_of(values, old_values, returns, clip=0.5):
    columns = (torch.as_tensor(x, dtype=torch.float64) for x in (values, old_values, returns))
    return clipped_value_errors(*columns, clip)[0].mean()


def columns(targets):
    return tuple(map(list, zip(*targets, strict=True)))


# Numbers worked out by hand


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "clipped"),
    [
        (0.25, 0.0, 1.0, 0.5 * 0.75**2, False),  # moved less than the clip
        (0.75, 0.0, 1.0, 0.5 * 0.5**2, True),  # moved far towards the target: no further gain
        (-0.75, 0.0, 1.0, 0.5 * 1.75**2, False),  # moved far from the target: the whole error
        (2.0, 0.0, 1.0, 0.5 * 1.0, False),  # moved past the target: the error that is the larger one
        (1.0, 0.0, 1.0, 0.5 * 0.5**2, True),  # reached the target, further than was allowed
    ],
)
def test_an_error_is_the_larger_of_the_plain_and_the_clipped_one(value, old, target, loss, clipped):
    assert loss_of([value], [old], [target]).item() == loss
    args = (torch.tensor([x]) for x in (value, old, target))
    assert clipped_value_errors(*args, clip=0.5)[1].item() is clipped


def test_without_clip_the_loss_is_the_squared_error():
    assert loss_of([5.0], [0.0], [1.0], clip=None).item() == 8


def test_half_precision_is_computed_in_float32():
    one = torch.ones(1, dtype=torch.bfloat16)
    (loss,), _ = clipped_value_errors(one, one, torch.tensor([1.001]), None)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(0.5 * 0.001**2, rel=1e-3)


# Laws


@given(TARGETS)
def test_a_wide_clip_is_none(targets):
    assert loss_of(*columns(targets), clip=100.0).item() == loss_of(*columns(targets), clip=None).item()


@given(TARGETS, st.sampled_from([0.125, 0.5, 2.0]))
def test_clipping_never_lowers_the_loss(targets, clip):
    assert loss_of(*columns(targets), clip=clip).item() >= loss_of(*columns(targets), clip=None).item()


@given(TARGETS, st.sampled_from([0.125, 0.5, 2.0]))
def test_no_gradient_flows_where_clipping_decides_and_the_plain_one_elsewhere(targets, clip):
    values, old, returns = (torch.tensor(column, dtype=torch.float64) for column in columns(targets))
    values.requires_grad_()
    errors, clipped = clipped_value_errors(values, old, returns, clip)
    errors.sum().backward()
    on_the_edge = (values.detach() - old).abs() == clip  # either gradient will do there
    expected = torch.where(clipped, 0, values.detach() - returns)
    assert torch.equal(values.grad[~on_the_edge], expected[~on_the_edge])


# Refused


@pytest.mark.parametrize("clip", [0.0, -1.0, NAN])
def test_a_clip_that_is_not_above_0_is_refused(clip):
    with pytest.raises(ValueError, match="clip must be above 0, got"):
        loss_of([1.0], [1.0], [1.0], clip=clip)


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
