"""Updates shared out to forward passes, and packed into trees."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_trees import random_rows, row, samples_of
from trl.experimental.async_grpo.packing import TreeRow

from hf_credit.trainers.asynchronous.packing import Sample, TooManyPassesError, pack, plan
from hf_credit.trainers.packing import shared_lengths


def test_a_row_is_cut_behind_its_last_token_in_the_loss() -> None:
    sample = Sample.of(row([1, 2], [3, 4, 5, 6], loss_mask=(0, 1, 1, 0)))
    assert sample is not None
    assert sample.ids.tolist() == [1, 2, 3, 4, 5]
    assert sample.targets.tolist() == [3, 4]
    assert sample.advantages.tolist() == [2, 3]
    assert sample.logprobs.tolist() == [-1, -2]
    assert sample.read == 4


def test_a_row_without_loss_is_no_sample() -> None:
    assert Sample.of(row([1, 2], [])) is None
    assert Sample.of(row([1, 2], [3], loss_mask=(0,))) is None


@pytest.mark.parametrize(
    ("broken", "missing"),
    [(row([1], [2], logprobs=None), "log-probabilities of its sampler"), (row([], [2]), "prompt")],
)
def test_a_row_that_cannot_be_trained_on_is_refused(broken: object, missing: str) -> None:
    with pytest.raises(ValueError, match=rf"must have a prompt and log-probabilities, got one without a {missing}"):
        Sample.of(broken)  # type: ignore[arg-type]


def test_a_tree_as_a_reader_would_draw_it() -> None:
    packed = pack(samples_of([row([1, 2], [3, 4]), row([1, 2], [3, 5], advantages=(7.0, 8.0))]))
    # Both read 1 2; what comes after 3 tells them apart, so 3 is read twice.
    assert packed["input_ids"].tolist() == [1, 2, 3, 3]
    assert packed["position_ids"].tolist() == [0, 1, 2, 2]
    assert packed["shift_labels"].tolist() == [-100, 3, 4, 5]
    assert packed["tree_cu_seqlens_q"].tolist() == [0, 3, 4]
    assert packed["tree_cu_seqlens_k"].tolist() == [0, 3, 6]
    assert packed["tree_kv_index"].tolist() == [0, 1, 2, 0, 1, 3]
    assert packed["tree_max_seqlens"].tolist() == [3, 3]
    # The shared place predicts 3 for both, each with an advantage of its own.
    assert packed["token_index"].tolist() == [1, 2, 1, 3]
    assert packed["advantages"].tolist() == [1, 2, 7, 8]
    assert packed["segment_id"].tolist() == [0, 0, 1, 1]


def test_equal_rows_are_read_once_and_both_in_the_loss() -> None:
    packed = pack(samples_of([row([1], [2, 3]), row([1], [2, 3])]))
    assert packed["input_ids"].tolist() == [1, 2]
    assert packed["token_index"].tolist() == [0, 1, 0, 1]


def test_a_row_that_another_goes_on_from_is_read_in_it() -> None:
    packed = pack(samples_of([row([1], [2, 3]), row([1, 2, 3, 4], [5])]))
    assert packed["input_ids"].tolist() == [1, 2, 3, 4]
    assert packed["shift_labels"].tolist() == [2, 3, -100, 5]


@given(seed=st.integers(0, 10**6), count=st.integers(1, 8))
def test_a_tree_has_the_fields_and_the_loss_terms_of_trl(seed: int, count: int) -> None:
    samples = samples_of(random_rows(Random(seed), count))
    if not samples:
        return
    tree = TreeRow()
    for number, one in enumerate(samples):
        mask = torch.zeros(len(one.ids))
        mask[one.targets] = 1
        logprobs = torch.zeros(len(one.ids))
        logprobs[one.targets] = torch.from_numpy(one.logprobs)
        ids = torch.from_numpy(one.ids)
        tree.add(
            {
                "input_ids": ids,
                "completion_mask": mask,
                "old_log_probs": logprobs,
                "advantage": 0.0,
                "group_id": number,
            }
        )
    theirs, ours = tree.pack(), pack(samples)
    assert ours.keys() == theirs.keys()
    assert {name: value.dtype for name, value in ours.items()} == {name: value.dtype for name, value in theirs.items()}
    assert len(ours["input_ids"]) <= len(theirs["input_ids"])
    for name in ("old_log_probs", "segment_id"):
        assert ours[name].tolist() == theirs[name].tolist()
    for packed in (ours, theirs):
        packed["predicted"] = packed["shift_labels"][packed["token_index"]]
        packed["at"] = packed["position_ids"][packed["token_index"]]
    assert ours["predicted"].tolist() == theirs["predicted"].tolist()
    assert ours["at"].tolist() == theirs["at"].tolist()


def cost(rows: list[Sample], per_token: float) -> float:
    """Of a pass over rows in order: tokens, and each token's attention to what is before it and itself."""
    shared = shared_lengths([one.ids for one in rows])
    places = [place for one, own in zip(rows, shared, strict=True) for place in range(own, one.read)]
    return sum(per_token + place + 1 for place in places)


@given(seed=st.integers(0, 10**6), count=st.integers(1, 7), passes=st.integers(1, 4))
def test_no_other_cut_of_an_update_has_a_costliest_pass_that_costs_less(seed: int, count: int, passes: int) -> None:
    samples = samples_of(random_rows(Random(seed), count))
    if not samples:
        return
    update = plan(samples, passes, budget=1000, per_token=2.0)
    assert len(update.rows) == passes
    used = min(passes, len(samples))
    least = min(
        max(cost(samples[first:last], 2.0) for first, last in pairwise([0, *cuts, len(samples)]))
        for cuts in combinations(range(1, len(samples)), used - 1)
    )
    costs = [cost(list(rows), 2.0) for rows in update.rows[:used]]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] <= least * 1.002


def test_every_sample_is_in_one_pass_and_those_that_begin_alike_share_it() -> None:
    rows = [row([first] * 20, [4, last]) for last in (5, 6, 7) for first in (1, 2)]
    update = plan(samples_of(rows), passes=2, budget=100)
    assert [[one.ids[0] for one in own] for own in update.rows] in ([[1] * 3, [2] * 3], [[2] * 3, [1] * 3])
    assert (update.read, update.apart) == (2 * (21 + 2), 6 * 21)


def test_what_a_pass_lacks_is_a_part_of_a_sample_without_weight() -> None:
    update = plan(samples_of([row([1, 2, 3], [4, 5])]), passes=3, budget=10)
    assert [[one.ids.tolist() for one in rows] for rows in update.rows] == [[[1, 2, 3, 4, 5]], *[[[1, 2, 3, 4]]] * 2]
    assert [rows[0].advantages.tolist() for rows in update.rows[1:]] == [[0.0], [0.0]]
    assert pack(update.rows[1])["token_index"].tolist() == [2]


def test_an_update_that_does_not_fit_is_refused() -> None:
    rows = samples_of([row([first] * 9, [4, 4]) for first in (1, 2, 3)])
    with pytest.raises(
        TooManyPassesError,
        match=r"at most 2 forward passes of token_budget=19 tokens, got one of 3; raise gradient_acc",
    ):
        plan(rows, passes=2, budget=19)
    assert len(plan(rows, passes=2, budget=20).rows) == 2


def test_the_budget_counts_what_is_read_once() -> None:
    rows = samples_of([row([1] * 9, [4, last]) for last in range(10)])
    update = plan(rows, passes=1, budget=19)
    assert update.read == 19
    assert np.isclose(update.apart / update.read, 100 / 19)


def test_a_pass_reads_rows_of_one_role() -> None:
    rows = [row([1, 2], [place], role=role) for place in range(3, 9) for role in ("a", "b")]
    rows += [row([1, 2], range(20), role="b")]
    update = plan(samples_of(rows), passes=4, budget=100, by_role=True)
    assert len(update.rows) == 4
    assert all(len({one.role for one in run}) == 1 for run in update.rows)
    assert sorted(len(one.ids) for run in update.rows for one in run) == sorted(3 if n < 12 else 22 for n in range(13))
    assert [run[0].role for run in update.rows].count("b") >= 2  # the costlier role has more passes
    with pytest.raises(TooManyPassesError, match="got one of 2; raise"):
        plan(samples_of(rows), passes=1, budget=100, by_role=True)
