from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.diagnostics import FidelityStatus, credit_fidelity, fidelity_interval, target_advantages

finite = st.floats(-5, 5, allow_nan=False).map(lambda value: round(value, 3))


def ranks(values):
    """Mean ranks by counting: those below, and half of the others that are equal."""
    return [sum(b < a for b in values) + (sum(b == a for b in values) + 1) / 2 for a in values]


def by_definition(a, b):
    """Pearson's correlation of the ranks."""
    x, y = ranks(a), ranks(b)
    mx, my = sum(x) / len(x), sum(y) / len(y)
    top = sum((p - mx) * (q - my) for p, q in zip(x, y, strict=True))
    return top / math.sqrt(sum((p - mx) ** 2 for p in x) * sum((q - my) ** 2 for q in y))


def test_targets_are_means_minus_the_mean_of_value_only_actions() -> None:
    # V pools the returns: (0 + 0 + 1 + 1 + 1) / 5 = 0.6, not the mean of the two actions' means.
    targets = target_advantages([[1, 1, 0, 0], [1]], [[0, 0], [1, 1, 1]])
    assert targets.tolist() == pytest.approx([-0.1, 0.4])


def test_without_value_only_actions_there_is_no_target() -> None:
    with pytest.raises(ValueError, match="at least 1 value-only action, got none; draw further actions"):
        target_advantages([[1.0], [0.0]], [])


@pytest.mark.parametrize(
    ("returns", "values", "complaint"),
    [
        ([[1.0], []], [[1.0]], "a candidate must have at least 1 return, got none; omit it"),
        ([[1.0]], [[]], "a value-only action must have at least 1 return"),
        ([[math.nan]], [[1.0]], "returns must be finite numbers, got nan at index 0; omit"),
        ([[1.0]], [[math.inf]], "returns must be finite numbers, got inf"),
    ],
)
def test_a_target_of_unusable_returns_is_refused(returns, values, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        target_advantages(returns, values)


def test_pairs_of_all_buckets_are_one_pool() -> None:
    # Ranks of the credits 1 2 3 4, of the targets 1 3 2 4: rho = 1 - 6 * 2 / (4 * 15) = 0.8.
    found = credit_fidelity([[0.1, 0.2], [0.3, 0.4]], [[-1.0, 3.0], [2.0, 5.0]])
    assert found.rho == pytest.approx(0.8)
    assert (found.status, found.candidates, found.buckets, found.alone) == (FidelityStatus.OK, 4, 2, 0)


def test_the_order_can_be_right_in_each_bucket_and_wrong_in_the_pool() -> None:
    found = credit_fidelity([[0, 1], [10, 11]], [[10, 11], [0, 1]])
    assert found.rho == pytest.approx(-0.6)  # ranks 1 2 3 4 against 3 4 1 2


@given(st.lists(st.lists(st.tuples(finite, finite), min_size=2, max_size=4), min_size=1, max_size=5))
def test_it_is_spearman_s_correlation_with_tied_ranks_averaged(buckets) -> None:
    credits, targets = ([[pair[side] for pair in bucket] for bucket in buckets] for side in (0, 1))
    found = credit_fidelity(credits, targets)
    flat = [list(itertools.chain(*side)) for side in (credits, targets)]
    if min(len(set(side)) for side in flat) > 1:
        assert found.rho == pytest.approx(by_definition(*flat), abs=1e-9)
    else:
        assert math.isnan(found.rho)
        assert found.status in (FidelityStatus.CONSTANT_CREDITS, FidelityStatus.CONSTANT_TARGETS)


def test_values_that_differ_only_by_rounding_are_tied() -> None:
    apart = [0.3, 0.1 + 0.2, 0.5]
    assert apart[0] != apart[1]
    assert credit_fidelity([apart], [[1, 2, 4]]).rho == credit_fidelity([[0.3, 0.3, 0.5]], [[1, 2, 4]]).rho


@pytest.mark.parametrize(
    ("credits", "targets", "status"),
    [
        ([[0.5, 0.5], [0.5, 0.5]], [[1, 2], [3, 4]], FidelityStatus.CONSTANT_CREDITS),
        ([[1, 2], [3, 4]], [[0, 0], [0, 0]], FidelityStatus.CONSTANT_TARGETS),
        ([[0, 0]], [[0, 0]], FidelityStatus.CONSTANT_CREDITS),
        ([[1], [2]], [[3], [4]], FidelityStatus.TOO_FEW),
        ([[], []], [[], []], FidelityStatus.TOO_FEW),
        ([], [], FidelityStatus.TOO_FEW),
    ],
)
def test_an_undefined_correlation_is_nan_with_its_reason(credits, targets, status) -> None:
    found = credit_fidelity(credits, targets)
    assert math.isnan(found.rho)
    assert found.status == status


def test_a_bucket_of_one_candidate_is_left_out_and_counted() -> None:
    found = credit_fidelity([[1, 2], [99], []], [[1, 3], [-99], []])
    assert (found.rho, found.candidates, found.buckets, found.alone) == (pytest.approx(1), 2, 1, 2)


def test_targets_centred_on_the_candidates_have_a_status() -> None:
    returns = [[0.0, 1.0], [0.25, 0.5]]
    centred = [[value - sum(own) / 2 for value in own] for own in returns]
    leave_one_out = [[own[0] - own[1], own[1] - own[0]] for own in returns]
    found = credit_fidelity(leave_one_out, centred)
    assert found.rho == pytest.approx(1)  # by construction
    assert found.status == FidelityStatus.CIRCULAR


@pytest.mark.parametrize(
    ("credits", "targets", "complaint"),
    [
        ([[1, 2]], [[1, 2], [3, 4]], "must have the same number of buckets, got 1 and 2"),
        ([[1, 2, 3]], [[1, 2]], "must have a credit and a target, got 3 and 2 in bucket 0"),
        ([[1, math.nan]], [[1, 2]], "credits must be finite numbers, got nan"),
        ([[1, 2]], [[1, -math.inf]], "targets must be finite numbers, got -inf"),
        ([1, 2], [1, 2], "credits must be a flat list of numbers"),
    ],
)
def test_what_cannot_be_paired_is_refused(credits, targets, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        credit_fidelity(credits, targets)


def test_the_interval_contains_the_correlation_and_narrows_with_buckets() -> None:
    # One bucket in four has its candidates in the wrong order.
    few = ([[0, 1], [2, 3], [4, 5], [7, 6]] * 2, [[0, 1], [2, 3], [4, 5], [6, 7]] * 2)
    many = tuple(side * 8 for side in few)
    wide, narrow = (fidelity_interval(*side) for side in (few, many))
    assert wide.low <= wide.mean <= wide.high
    assert 0 < narrow.high - narrow.low < wide.high - wide.low
    assert (wide.n, narrow.n) == (8, 64)
    assert wide.mean == credit_fidelity(*few).rho
    assert fidelity_interval(*few) == wide


@pytest.mark.parametrize("credits", [[], [[1, 2]], [[1, 1], [1, 1]]])
def test_too_few_buckets_have_no_interval(credits) -> None:
    found = fidelity_interval(credits, [[1, 2]] * len(credits))
    assert math.isnan(found.low)
    assert math.isnan(found.high)


@pytest.mark.parametrize("options", [{"confidence": 1.0}, {"resamples": 0}])
def test_options_out_of_range_are_refused(options) -> None:
    with pytest.raises(ValueError, match=r"confidence must be |resamples must be at least 1"):
        fidelity_interval([[1, 2]], [[1, 2]], **options)
