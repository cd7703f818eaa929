"""What is known of collections besides their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from hf_credit.diagnostics.signal import Played, can_tell, signal
from hf_credit.evaluation.statistics import SHARE, mean_interval
from hf_credit.rollouts import Ledger


def played(*tasks: list[float], names: Iterable[Any] = itertools.count()) -> Played:
    """A collection from the outcomes, and successes, of the episodes of each task; of new tasks by default."""
    outcomes = [(task, one, one) for task, own in zip(names, tasks, strict=False) for one in own]
    return Played(cost=Ledger(), outcomes=outcomes)


def test_the_interval_of_successes_is_over_tasks() -> None:
    # Of tasks in turn all and none of eight episodes succeed.
    collections = [played([1.0] * 8, [0.0] * 8) for _ in range(4)]
    found = signal(np.eye(4), collections).success
    assert found == mean_interval([1.0, 0.0] * 4, within=SHARE)
    assert found.n == 8


def test_a_share_of_successes_of_0_is_told_by_tasks_and_by_three_collections() -> None:
    assert not can_tell([played(*[[0.0] * 8] * 16)] * 3)  # 48 tasks with eight episodes each
    many = [played(*[[0.0]] * 128) for _ in range(3)]
    assert not can_tell(many[:2])
    assert can_tell(many)
    assert [can_tell([played([1.0], [0.0])] * n) for n in (7, 8)] == [False, True]


def test_a_task_that_comes_again_is_one_task() -> None:
    again = [played([0.0], [one], names="ab") for one in (1.0, 0.0, 0.0, 1.0)]
    found = signal(np.eye(4), again).success
    assert (found.mean, found.n) == (0.25, 2)
    assert not can_tell([played(*[[0.0]] * 40, names=range(40)) for _ in range(9)])


def test_an_unknown_outcome_is_no_other_outcome() -> None:
    nan = math.nan
    assert played([1.0, 1.0, nan], [0.0, 1.0], [nan, 1.0]).groups() == [{1.0}, {0.0, 1.0}]
    assert played([1.0], [nan]).groups() == [{1.0}]
    assert signal(np.eye(3), [played([1.0, 1.0, nan], [0.0, 1.0])] * 3).equal == pytest.approx(0.5)
    assert math.isnan(signal(np.eye(3), [played([nan, nan])] * 3).equal)


def test_a_signal_and_its_interval_by_hand() -> None:
    collections = [Played(cost=Ledger(completion_tokens=10), outcomes=[]) for _ in range(3)]
    found = signal([[3.0], [1.0], [2.0]], collections)
    # S = (6^2 - 14) / 6, of pseudo-values 7, -1 and 5; those of its root are 2.9161, .8456 and 2.2805.
    assert (found.signal.mean, found.variance, found.cost.mean) == pytest.approx((11 / 3, 1.0, 30 / 11))
    assert (found.signal.low, found.signal.high) == pytest.approx((-6.6756, 20.6998), abs=1e-4)


@pytest.mark.parametrize(
    ("heard", "of", "bounded"), [(3, 3, True), (5, 8, False), (6, 8, True), (7, 24, False), (8, 24, True)]
)
def test_where_few_collections_have_a_gradient_a_signal_has_no_upper_end(heard: int, of: int, bounded: bool) -> None:
    collections = [Played(cost=Ledger(completion_tokens=10), outcomes=[]) for _ in range(of)]
    found = signal([[1.0]] * heard + [[0.0]] * (of - heard), collections)
    assert found.silent == pytest.approx(1 - heard / of)
    assert math.isinf(found.signal.high) != bounded
    assert bounded or found.cost.low == 0
