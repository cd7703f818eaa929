from __future__ import annotations

import math

import pytest

from hf_credit.diagnostics import Failure, failure_category


@pytest.mark.parametrize(
    ("returns", "category"),
    [
        # The paper's cases: one of twelve is right but not the real one; both are right; all plans fail.
        ([[0.0], [1.0], *[[0.0]] * 10], Failure.CREDIT_SHIFT),
        ([[1.0], [1.0]], Failure.AMBIGUITY),
        ([[0.0]] * 8, Failure.MISLEADING_PLAN),
        # At the thresholds: more than 0.2, less than 0.5, less than 0.01.
        ([[0.6], [0.8]], Failure.NONE),
        ([[0.6], [0.81]], Failure.CREDIT_SHIFT),
        ([[0.4], [0.49]], Failure.MISLEADING_PLAN),
        ([[0.4], [0.5]], Failure.NONE),
        ([[0.9], [0.91]], Failure.NONE),
        ([[0.9], [0.909]], Failure.AMBIGUITY),
        # A shift counts even if all candidates mostly fail.
        ([[0.0], [0.3]], Failure.CREDIT_SHIFT),
        # The real action is the best, and the replays of a candidate do not differ.
        ([[1.0, 1.0], [0.0, 0.0]], Failure.NONE),
        # Means 1/2 and 3/4 with variances 1/4 and 3/16 inside: the replays differ more than the candidates.
        ([[1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0]], Failure.OVER_COUPLING),
    ],
)
def test_the_category_of_returns(returns, category) -> None:
    assert failure_category(returns) == category


@pytest.mark.parametrize("returns", [[], [[1.0]], [[1.0], []], [[], [1.0], [0.0]]])
def test_fewer_than_two_replayed_candidates_cannot_be_compared(returns) -> None:
    assert failure_category(returns) == Failure.UNKNOWN


def test_a_candidate_that_was_not_replayed_is_not_compared() -> None:
    assert failure_category([[0.0], [], [1.0]]) == Failure.CREDIT_SHIFT


def test_the_categories_include_those_of_the_paper() -> None:
    assert {str(one) for one in Failure} >= {"successful credit shift", "evaluator ambiguity", "misleading plan"}


def test_unusable_returns_are_refused() -> None:
    with pytest.raises(ValueError, match="returns must be finite numbers, got nan at index 0"):
        failure_category([[1.0], [math.nan]])
