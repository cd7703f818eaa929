"""Whether answers rest on their evidence."""

from __future__ import annotations

import math

import pytest

from hf_credit.diagnostics import evidence_f1


def test_means_over_answers():
    found = evidence_f1([{1, 2}, {3}, ()], [{1}, {3, 4, 5}, {6}], [1.0, 1.0, 1.0])
    assert found.f1 == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert found.precision == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert found.recall == pytest.approx((1 + 1 / 3 + 0) / 3)
    assert found.reward == pytest.approx((4 / 5 + 2 / 3 + 0) / 3)  # 2 f / (f + 1)


def test_without_entailment_the_reward_is_0_and_without_answers_there_is_no_mean():
    assert evidence_f1([{1}], [{1}], [0.0]).reward == 0
    assert math.isnan(evidence_f1([{1}], [{1}]).reward)
    assert math.isnan(evidence_f1([], []).f1)


def test_an_entailment_outside_its_range_is_refused():
    with pytest.raises(ValueError, match=r"an entailment must be in \[0, 1\], got 1.5"):
        evidence_f1([{1}], [{1}], [1.5])
