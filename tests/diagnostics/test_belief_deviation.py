"""Beliefs compared with labels from the transcript."""

from __future__ import annotations

import math

import pytest

from hf_credit.diagnostics import belief_deviation


def test_the_divergence_is_from_the_label_to_the_belief():
    found = belief_deviation([[0.25, 0.75]], [[0.5, 0.5]])
    assert found.deviation == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert belief_deviation([[0.5, 0.5]], [[0.25, 0.75]]).deviation != pytest.approx(found.deviation)
    assert belief_deviation([[0.25, 0.75]], [[0.25, 0.75]]).deviation == 0


def test_an_infinite_divergence_is_clipped():
    assert belief_deviation([[1.0, 0.0]], [[0.0, 1.0]]).deviation == 2
    assert belief_deviation([[1.0, 0.0]], [[0.5, 0.5]], most=1.0).deviation == 1
    assert belief_deviation([[0.99, 0.01]], [[0.0, 1.0]]).deviation == 2
    assert belief_deviation([[1.0, 0.0]], [[1.0, 0.0]]).deviation == 0


def test_the_calibration_error_weighs_bins_by_their_size():
    # Three in the bin of .6, one of them right; one of 1, right.
    beliefs = [[0.6, 0.4], [0.6, 0.4], [0.6, 0.4], [1.0, 0.0]]
    labels = [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    found = belief_deviation(beliefs, labels)
    assert found.accuracy == 0.5
    assert found.calibration_error == pytest.approx(3 / 4 * (0.6 - 1 / 3))
    assert belief_deviation(beliefs, labels, bins=1).calibration_error == pytest.approx(0.7 - 0.5)


def test_no_beliefs_have_no_mean():
    assert math.isnan(belief_deviation([], []).deviation)


@pytest.mark.parametrize(
    ("belief", "label", "message"),
    [
        ([0.5, 0.4], [1.0, 0.0], "a belief must be a distribution"),
        ([0.5, 0.5], [1.5, -0.5], "a label must be a distribution"),
        ([0.5, 0.5], [1.0], "the same length, got 2 and 1"),
    ],
)
def test_what_is_off_the_simplex_is_refused(belief, label, message):
    with pytest.raises(ValueError, match=message):
        belief_deviation([belief], [label])
    with pytest.raises(ValueError, match="most must be above 0 and bins at least 1"):
        belief_deviation([[1.0]], [[1.0]], most=0)


def test_of_values_that_tie_each_counts_its_share():
    found = belief_deviation([[0.5, 0.5]] * 4, [[1.0, 0.0], [0.0, 1.0]] * 2)
    assert (found.accuracy, found.calibration_error) == (0.5, 0.0)
