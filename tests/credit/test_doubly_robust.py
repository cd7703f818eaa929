"""Ratios, values and contributions of steps against numbers worked out by hand and enumeration."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import continuation_ratio, contributions, doubly_robust_values, family_mean, sequential_values


def logs(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


def test_the_ratio_is_the_product_over_later_action_tokens():
    target, behaviour = logs([0.5, 0.8, 0.9]), logs([0.25, 0.4, 0.1])
    assert continuation_ratio(target, behaviour, torch.tensor([[1, 1, 0]])).item() == pytest.approx(4.0)


def test_it_is_clipped_once_and_not_token_by_token():
    # 10 x .25 is 2.5; clipping each to [.2, 5] would give 1.25.
    assert continuation_ratio(logs([1.0, 0.1]), logs([0.1, 0.4]), torch.ones(1, 2)).item() == pytest.approx(2.5)
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


MU = (0.8, {0: 0.3, 1: 0.6})  # the probability of saying 1: first, then after each first
PLAYED = (0.4, {0: 0.5, 1: 0.2})
OUTCOME = {(0, 0): 0.0, (0, 1): 1.0, (1, 0): 0.25, (1, 1): 0.75}

PATHS = list(itertools.product((0, 1), repeat=2))
PROBABILITIES = st.integers(1, 19).map(lambda twentieths: twentieths / 20)
UNIT = st.integers(0, 10).map(lambda tenths: tenths / 10)


def steps(policy, path):
    """The probability of each of the two decisions of a path."""
    first, then = policy
    return [one if said else 1 - one for one, said in zip((first, then[path[0]]), path, strict=True)]


def chance(policy, path):
    return math.prod(steps(policy, path))


def ratio(path):
    return chance(MU, path) / chance(PLAYED, path)


def value(policy, said=()):
    """The exact expected outcome after what was said so far."""
    matching = [path for path in PATHS if path[: len(said)] == tuple(said)]
    weights = [math.prod(steps(policy, path)[len(said) :]) for path in matching]
    return sum(weight * OUTCOME[path] for weight, path in zip(weights, matching, strict=True))


def mean(policy, estimate):
    """The mean of an estimate over all that the policy may play."""
    return sum(chance(policy, path) * float(estimate(path)) for path in PATHS)


def one(number):
    return torch.tensor([float(number)], dtype=torch.float64)


def row(numbers):
    return torch.tensor([[float(number) for number in numbers]], dtype=torch.float64)


def sequential(path, before, after, ratios):
    return sequential_values(one(OUTCOME[path]), row(before), row(after), row(ratios), torch.ones(1, 2))


TRUTH = value(MU)


@given(UNIT)
def test_with_the_exact_ratio_any_model_is_right_in_the_mean(model):
    estimate = lambda path: doubly_robust_values(one(OUTCOME[path]), one(model), one(ratio(path)))  # noqa: E731
    assert mean(PLAYED, estimate) == pytest.approx(TRUTH)


def test_with_a_wrong_ratio_the_right_model_is_biased_against_appendix_a1():
    estimate = lambda path: doubly_robust_values(one(OUTCOME[path]), one(TRUTH), one(1.0))  # noqa: E731
    assert mean(PLAYED, estimate) == pytest.approx(value(PLAYED))
    assert abs(value(PLAYED) - TRUTH) > 0.03


def test_on_a_continuation_of_mu_itself_the_model_cancels():
    assert doubly_robust_values(one(0.75), one(0.1), one(1.0)).item() == pytest.approx(0.75)


def exact_ratios(path):
    return [mu / own for mu, own in zip(steps(MU, path), steps(PLAYED, path), strict=True)]


@given(st.lists(UNIT, min_size=6, max_size=6))
def test_sequential_values_are_right_with_exact_ratios_and_any_model_that_agrees_with_itself(model):
    first, then = model[:2], dict(zip(PATHS, model[2:], strict=True))

    def estimate(path):
        before = (
            MU[0] * first[1] + (1 - MU[0]) * first[0],
            MU[1][path[0]] * then[path[0], 1] + (1 - MU[1][path[0]]) * then[path[0], 0],
        )
        return sequential(path, before, (first[path[0]], then[path]), exact_ratios(path))

    assert mean(PLAYED, estimate) == pytest.approx(TRUTH)


def test_a_model_that_does_not_agree_with_itself_is_off_by_as_much():
    """v = 0.5 before the first decision, where q is 0.2 after it whatever was said."""
    estimate = lambda path: sequential(path, (0.5, 0.2), (0.2, 0.2), exact_ratios(path))  # noqa: E731
    assert mean(PLAYED, estimate) == pytest.approx(TRUTH + 0.3)


@given(PROBABILITIES, PROBABILITIES)
def test_sequential_values_are_right_with_the_right_model_and_any_ratios(first, second):
    def estimate(path):
        before = (value(MU), value(MU, path[:1]))
        after = (value(MU, path[:1]), OUTCOME[path])
        return sequential(path, before, after, (4 * first, 4 * second))

    assert mean(PLAYED, estimate) == pytest.approx(TRUTH)


def test_without_later_decisions_the_value_is_the_outcome():
    found = sequential_values(one(0.25), row([0.9]), row([0.1]), row([3.0]), torch.zeros(1, 1))
    assert found.item() == 0.25


def test_the_contribution_is_what_is_lost_without_the_step():
    values = torch.tensor([1.0, 0.5])
    replaced = torch.tensor([[0.0, 0.5], [1.0, math.nan]])
    mask = torch.tensor([[1, 1], [1, 0]])
    found = contributions(values, replaced, mask, torch.tensor([0.5, 0.25]), torch.ones(2))
    assert found.tolist() == [1.5, -2.0]
    assert contributions(values, replaced, mask, torch.ones(2), torch.ones(2), "none").tolist() == [0.75, -0.5]


@given(PROBABILITIES, UNIT)
def test_both_corrections_are_unbiased_under_selection(inclusion, model):
    """The mean over being selected or not is the difference itself, whatever the model predicts."""
    told = {"values": torch.tensor([1.0]), "replaced": torch.tensor([[0.25]]), "mask": torch.ones(1, 1)}
    for selection, predicted in (("inverse", None), ("augmented", torch.tensor([model]))):
        both = [
            contributions(
                **told,
                inclusion=torch.tensor([inclusion]),
                selected=torch.tensor([selected]),
                selection=selection,
                predicted=predicted,
            ).item()
            for selected in (0, 1)
        ]
        assert (1 - inclusion) * both[0] + inclusion * both[1] == pytest.approx(0.75, abs=1e-6)


def test_a_good_prediction_lowers_the_variance_of_selection():
    """With q = 0.15 and a difference of 0.75: 0.75^2 (1/q - 1) without a model, 0 with a perfect one."""
    told = {"values": torch.tensor([1.0]), "replaced": torch.tensor([[0.25]]), "mask": torch.ones(1, 1)}
    inclusion = torch.tensor([0.15])

    def variance(selection, predicted):
        both = [
            contributions(
                **told, inclusion=inclusion, selected=torch.tensor([s]), selection=selection, predicted=predicted
            )
            for s in (0, 1)
        ]
        return 0.85 * (both[0].item() - 0.75) ** 2 + 0.15 * (both[1].item() - 0.75) ** 2

    assert variance("inverse", None) == pytest.approx(0.5625 * (1 / 0.15 - 1), rel=1e-5)
    assert variance("augmented", torch.tensor([0.75])) == pytest.approx(0, abs=1e-9)


def test_a_selected_step_without_branches_has_no_estimate_and_an_unselected_one_has_zero():
    found = contributions(
        torch.tensor([1, 1]), torch.zeros(2, 2), torch.zeros(2, 2), torch.tensor([0.5, 0.5]), torch.tensor([1, 0])
    )
    assert math.isnan(found[0])
    assert found[1] == 0


@given(st.lists(st.tuples(UNIT, UNIT, st.floats(0.2, 5)), min_size=1, max_size=5), st.floats(0.15, 1))
def test_with_clipped_ratios_no_contribution_leaves_its_bounds(branches, inclusion):
    """The bracket of eq. 6 is within 9, and within 5 where the replacements are played by mu."""
    outcomes, models, ratios = (torch.tensor(column, dtype=torch.float64) for column in zip(*branches, strict=True))
    q, everywhere = torch.full((1,), inclusion, dtype=torch.float64), torch.ones(1)
    own = doubly_robust_values(outcomes[:1], models[:1], ratios[:1])
    for rho, bound in ((ratios, 9), (torch.ones_like(ratios), 5)):
        others = doubly_robust_values(outcomes, models, rho)[None]
        found = contributions(own, others, torch.ones_like(others), q, everywhere)
        assert abs(found.item()) <= bound / inclusion + 1e-9


def test_families_without_an_estimate_are_left_out_of_the_mean():
    nan = math.nan
    estimates = torch.tensor([[1.0, 0.0, 0.5, nan], [nan, nan, nan, nan], [nan, 0.5, nan, nan]])
    found = family_mean(estimates, torch.tensor([0.25, 0.20, 0.30, 0.25]))
    assert found[0].item() == pytest.approx((0.25 + 0.15) / 0.75)
    assert math.isnan(found[1])
    assert found[2].item() == pytest.approx(0.5)
    assert family_mean(torch.tensor([[1.0, 3.0]]), torch.tensor([0.0, 0.5])).item() == 3.0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"inclusion": torch.tensor([0.0])}, r"the selection probability must be in \(0, 1\], got 0.0"),
        ({"selection": "other"}, "selection must be one of inverse, augmented, none, got 'other'"),
        ({"selection": "augmented"}, "got 'augmented' without them"),
        ({"predicted": torch.tensor([0.5])}, "got 'inverse' with them"),
    ],
)
def test_what_cannot_be_corrected_is_refused(changed, said):
    told = {
        "values": torch.tensor([1.0]),
        "replaced": torch.zeros(1, 1),
        "mask": torch.ones(1, 1),
        "inclusion": torch.tensor([0.5]),
        "selected": torch.ones(1),
    }
    with pytest.raises(ValueError, match=said):
        contributions(**{**told, **changed})


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"outcomes must be in \[0, 1\], got 1.5"):
        doubly_robust_values(one(1.5), one(0.5), one(1.0))
    with pytest.raises(ValueError, match=r"ratios must be finite and at least 0, got -1.0"):
        doubly_robust_values(one(1.0), one(0.5), one(-1.0))
    with pytest.raises(ValueError, match=r"weights must be at least 0 and not all 0, got \[0.0, 0.0\]"):
        family_mean(torch.zeros(1, 2), torch.zeros(2))
