"""Invalid and unusual interventions, by family."""

from __future__ import annotations

import math

import pytest

from hf_credit.diagnostics import intervention_validity


def test_shares_are_of_each_family():
    found = intervention_validity(["deletion", "paraphrase", "deletion", "paraphrase"], [True, False, True, True])
    assert list(found) == ["deletion", "paraphrase"]
    assert (found["deletion"].invalid, found["paraphrase"].invalid) == (0, 0.5)
    assert (found["deletion"].proposals, found["deletion"].judged) == (2, 0)
    assert math.isnan(found["deletion"].out_of_distribution)


def test_a_proposal_is_compared_with_replies_of_its_kind():
    sampled = [-1.0] * 19 + [-5.0]  # the 5th percentile lies between the last two
    found = intervention_validity(
        ["own"] * 5,
        [True, True, True, False, True],
        ["read", "read", "final", "read", "other"],
        [-2.0, -1.0, -2.0, -9.0, -9.0],
        ["read"] * 20 + ["final"],
        [*sampled, -8.0],
    )["own"]
    # The 5th percentile of the reads is -5 + .95 * 4 = -1.2; the kind of the last one was never sampled.
    assert (found.judged, found.out_of_distribution) == (3, pytest.approx(1 / 3))


def test_log_probabilities_that_are_not_finite_are_refused():
    for own, sampled in (([math.nan], [-1.0]), ([-1.0], [math.nan])):
        with pytest.raises(ValueError, match="log-probabilities must be finite"):
            intervention_validity(["own"], [True], ["read"], own, ["read"], sampled)


def test_a_quantile_outside_its_range_is_refused():
    with pytest.raises(ValueError, match=r"quantile must be in \(0, 1\), got 0"):
        intervention_validity([], [], quantile=0)
