"""Padded batches and micro-batches have every row and token once."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.rollouts import Row
from hf_credit.rollouts.batches import map_micro_batches, micro_batches, pad_rows, padding_row, unpadded

PAD = 0  # a token of the text as well


def row(prompt, completion, mask=None, advantages=None, logprobs=None):
    return Row(
        prompt_ids=tuple(prompt),
        completion_ids=tuple(completion),
        loss_mask=tuple(mask or [1] * len(completion)),
        advantages=tuple(advantages or [1.0] * len(completion)),
        logprobs=None if logprobs is None else tuple(logprobs),
    )


@st.composite
def rows(draw, logprobs=True):
    """Distinct rows, which contain the padding token."""
    result = []
    for number in range(draw(st.integers(1, 8))):
        length = draw(st.integers(1, 6))
        result.append(
            Row(
                prompt_ids=tuple(draw(st.lists(st.integers(0, 3), max_size=5))),
                completion_ids=(100 + number, *draw(st.lists(st.integers(0, 3), min_size=length, max_size=length))),
                loss_mask=tuple(draw(st.lists(st.integers(0, 1), min_size=length + 1, max_size=length + 1))),
                advantages=tuple(float(number * 10 + position) for position in range(length + 1)),
                logprobs=tuple(-float(number * 10 + position) for position in range(length + 1)) if logprobs else None,
            )
        )
    return result


def without_padding(batch):
    """The rows of a batch, by its masks."""
    found = []
    for index in range(len(batch["prompt_ids"])):
        prompt, completion = batch["prompt_mask"][index].bool(), batch["completion_mask"][index].bool()
        found.append(
            Row(
                prompt_ids=tuple(batch["prompt_ids"][index][prompt].tolist()),
                completion_ids=tuple(batch["completion_ids"][index][completion].tolist()),
                loss_mask=tuple(batch["tool_mask"][index][completion].tolist()),
                advantages=tuple(batch["advantages"][index][completion].tolist()),
                logprobs=(
                    tuple(batch["sampling_per_token_logps"][index][completion].tolist())
                    if "sampling_per_token_logps" in batch
                    else None
                ),
            )
        )
    return found


def test_prompts_are_padded_on_the_left_and_completions_on_the_right():
    batch = pad_rows(
        [row([1, 2, 3], [4], [1], [0.5], [-1.0]), row([5], [6, 0], [0, 1], [0, -0.5], [0, -2.0])], pad_token_id=PAD
    )
    assert {name: value.tolist() for name, value in batch.items()} == {
        "prompt_ids": [[1, 2, 3], [0, 0, 5]],
        "prompt_mask": [[1, 1, 1], [0, 0, 1]],
        "completion_ids": [[4, 0], [6, 0]],
        "completion_mask": [[1, 0], [1, 1]],
        "tool_mask": [[1, 0], [0, 1]],
        "advantages": [[0.5, 0.0], [0.0, -0.5]],
        "sampling_per_token_logps": [[-1.0, 0.0], [0.0, -2.0]],
    }
    floats = {name for name, value in batch.items() if value.dtype == torch.float32}
    assert floats == {"advantages", "sampling_per_token_logps"}
    assert {value.dtype for name, value in batch.items() if name not in floats} == {torch.int64}


def test_log_probabilities_need_those_of_every_row():
    batch = pad_rows([row([1], [2], logprobs=[-1.0]), row([1], [2])], PAD)
    assert "sampling_per_token_logps" not in batch


def test_a_row_without_log_probabilities_has_none_in_the_batch():
    batch = pad_rows([row([1], [2, 3], logprobs=[math.nan, -1.0])], PAD)
    assert batch["sampling_per_token_logps"].isnan().tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("multiple", "prompt", "completion"), [(None, 3, 5), (1, 3, 5), (2, 4, 6), (3, 3, 6), (5, 5, 5), (8, 8, 8)]
)
def test_lengths_are_rounded_up_to_a_multiple(multiple, prompt, completion):
    batch = pad_rows([row([1, 2, 3], [4]), row([], [5, 6, 7, 8, 9])], PAD, multiple)
    assert batch["prompt_ids"].shape == batch["prompt_mask"].shape == (2, prompt)
    assert batch["completion_ids"].shape == batch["advantages"].shape == (2, completion)


@given(rows(), st.sampled_from([None, 1, 4, 7]))
def test_masks_recover_rows_also_if_the_padding_token_is_in_the_text(some, multiple):
    assert without_padding(pad_rows(some, PAD, multiple)) == some


@given(rows(), st.integers(1, 10), st.sampled_from([None, 4]), st.booleans())
def test_micro_batches_have_every_row_once(some, size, multiple, together):
    parts = micro_batches(pad_rows(some, PAD, multiple), size, together=together)
    assert Counter(row for part in parts for row in without_padding(part)) == Counter(some)
    lengths = [len(part["prompt_ids"]) for part in parts]
    assert len(parts) == -(-len(some) // size)
    assert lengths[:-1] == [size] * (len(parts) - 1)


@given(rows(), st.integers(1, 4), st.sampled_from([None, 4]))
def test_micro_batches_have_no_column_of_only_padding(some, size, multiple):
    for part in micro_batches(pad_rows(some, PAD, multiple), size):
        for name in ("prompt", "completion"):
            assert part[f"{name}_mask"].any(dim=0).all()
            assert part[f"{name}_ids"].shape == part[f"{name}_mask"].shape
        assert {part[name].shape for name in ("tool_mask", "advantages")} == {part["completion_ids"].shape}


@given(rows(), st.integers(1, 4), st.sampled_from([None, 4]))
def test_rows_that_are_read_by_themselves_are_sorted_by_length(some, size, multiple):
    order = []
    for part in micro_batches(pad_rows(some, PAD, multiple), size):
        order += (part["prompt_mask"].sum(1) + part["completion_mask"].sum(1)).tolist()
    assert order == sorted(order, reverse=True)


@given(st.permutations([(prompt, number) for prompt in range(5) for number in range(4)]), st.sampled_from([4, 8, 12]))
def test_rows_with_equal_prompts_share_a_micro_batch_if_they_fit(order, size):
    some = [row([prompt] * (prompt + 1), [100 + number] * (number + 1)) for prompt, number in order]
    for part in micro_batches(pad_rows(some, PAD), size, together=True):
        prompts = Counter(row.prompt_ids for row in without_padding(part))
        assert set(prompts.values()) == {4}


def test_only_prompts_with_more_rows_than_fit_are_split():
    some = [row([1], [number]) for number in range(5)] + [row([2, 2], [number]) for number in range(3)]
    parts = micro_batches(pad_rows(some, PAD), 4, together=True)
    assert [[row.prompt_ids for row in without_padding(part)] for part in parts] == [
        [(1,)] * 4,
        [(2, 2)] * 3 + [(1,)],
    ]


def test_a_prompt_is_split_only_if_it_fits_in_no_micro_batch():
    some = [row([prompt], [number]) for prompt in (1, 2, 3) for number in range(2)]
    parts = micro_batches(pad_rows(some, PAD), 3, together=True)
    assert [[row.prompt_ids[0] for row in without_padding(part)] for part in parts] == [[1, 1, 2], [2, 3, 3]]


def test_rows_that_begin_alike_are_neighbours_whatever_their_prompts_and_lengths():
    some = [row([9, first, last] * last, [3]) for last in (1, 4, 2) for first in (6, 5)]
    parts = micro_batches(pad_rows(some, PAD), 3, together=True)
    assert [{row.prompt_ids[:2] for row in without_padding(part)} for part in parts] == [{(9, 5)}, {(9, 6)}]
    # 300 comes after 5, though its first byte does not
    some = [row([first], [3]) for first in (300, 5, 301, 6)]
    parts = micro_batches(pad_rows(some, PAD), 2, together=True)
    assert [[row.prompt_ids[0] for row in without_padding(part)] for part in parts] == [[5, 6], [300, 301]]


def test_prompts_with_padding_tokens_differ_from_their_padding():
    some = [row([PAD, 5], [1]), row([5], [2]), row([PAD, 5], [3])]
    parts = micro_batches(pad_rows(some, PAD), 2, together=True)
    assert [[row.prompt_ids for row in without_padding(part)] for part in parts] == [[(PAD, 5)] * 2, [(5,)]]


def test_prompts_that_differ_only_in_padding_tokens_have_other_tokens():
    batch = pad_rows([row([PAD, 5], [1]), row([5], [2])], PAD)
    assert batch["prompt_ids"].unique(dim=0).tolist() == [[PAD, 5]]
    assert [ids.tolist() for ids in unpadded(batch["prompt_ids"], batch["prompt_mask"])] == [[PAD, 5], [5]]


def test_rows_of_one_length_keep_their_order():
    parts = micro_batches(pad_rows([row([1], [number]) for number in range(10)], PAD), 4)
    assert [part["completion_ids"].flatten().tolist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_micro_batches_have_their_rows_and_all_scalars():
    batch = pad_rows([row([1], [2]), row([1], [2, 3, 4])], PAD)
    batch["num_items_in_batch"] = torch.tensor(4)
    batch["row"] = torch.tensor([0, 1])
    batch["importance_sampling_ratio"] = torch.tensor([[0.5], [2.0]])  # of whole rows: one column
    batch["old_per_token_logps"] = torch.tensor([[-1.0, 0.0, 0.0], [-2.0, -3.0, -4.0]])
    long, brief = micro_batches(batch, 1)
    assert [part["num_items_in_batch"].item() for part in (long, brief)] == [4, 4]
    assert [part["row"].tolist() for part in (long, brief)] == [[1], [0]]
    assert [part["importance_sampling_ratio"].tolist() for part in (long, brief)] == [[[2.0]], [[0.5]]]
    assert [part["old_per_token_logps"].tolist() for part in (long, brief)] == [[[-2.0, -3.0, -4.0]], [[-1.0]]]


def test_the_batch_does_not_change():
    batch = pad_rows([row([1, 2], [3]), row([1], [2, 3])], PAD, 4)
    before = {name: value.clone() for name, value in batch.items()}
    micro_batches(batch, 1)
    torch.testing.assert_close(batch, before)


@pytest.mark.parametrize("logprobs", [True, False])
def test_a_padding_row_has_no_loss(logprobs):
    other = row([1, 2], [3], logprobs=[-1.0] if logprobs else None)
    batch = pad_rows([other, padding_row([7], logprobs)], PAD)
    assert batch["tool_mask"].tolist() == [[1], [0]]
    assert batch["advantages"].tolist() == [[1.0], [0.0]]
    assert (batch["prompt_ids"][1].tolist(), batch["completion_ids"][1].tolist()) == ([0, 7], [7])
    assert ("sampling_per_token_logps" in batch) == logprobs


@given(rows(), st.integers(1, 4), st.sampled_from([None, 4]))
def test_numbers_computed_in_micro_batches_are_at_their_tokens(some, size, multiple):
    batch = pad_rows(some, PAD, multiple)

    def sums(part):
        """A number of each token and all before it in its row."""
        before = (part["prompt_ids"] * part["prompt_mask"]).sum(1, keepdim=True)
        return before + (part["completion_ids"] * part["completion_mask"]).cumsum(1)

    expected = [
        [sum(row.prompt_ids) + sum(row.completion_ids[: place + 1]) for place in range(len(row.completion_ids))]
        for row in some
    ]
    found = map_micro_batches(batch, size, sums)
    assert found[~batch["completion_mask"].bool()].tolist() == [0.0] * int((batch["completion_mask"] == 0).sum())
    assert [
        values[mask.bool()].tolist() for values, mask in zip(found, batch["completion_mask"], strict=True)
    ] == expected


# Roles with policies of their own

ROLES = ("reasoner", "actor", "judge")


@given(rows(), st.data(), st.integers(1, 5))
def test_no_micro_batch_mixes_roles_and_their_number_depends_only_on_that_of_rows(some, data, size):
    drawn = data.draw(st.lists(st.sampled_from(ROLES), min_size=len(some), max_size=len(some)))
    batch = pad_rows([replace(row, role=role) for row, role in zip(some, drawn, strict=True)], PAD, roles=ROLES)
    parts = micro_batches(batch, size, len(ROLES))
    assert all(len(part["role"].unique()) == 1 and len(part["role"]) <= size for part in parts)
    assert Counter(row for part in parts for row in without_padding(part)) == Counter(some)
    # Another process has as many rows, of other roles; both meet in every part.
    other = pad_rows([replace(row, role="actor") for row in some], PAD, roles=ROLES)
    assert len(micro_batches(other, size, len(ROLES))) == len(parts)


def test_the_role_of_a_row_is_an_index_and_padding_rows_have_the_first():
    some = [replace(row([1], [2]), role="judge"), padding_row([7]), replace(row([1], [3]), role="actor")]
    assert pad_rows(some, PAD, roles=ROLES)["role"].tolist() == [2, 0, 1]
    assert "role" not in pad_rows(some, PAD)


def test_rows_of_one_prompt_and_two_roles_are_in_different_micro_batches():
    some = [replace(row([1], [number]), role=ROLES[number % 2]) for number in range(4)]
    parts = micro_batches(pad_rows(some, PAD, roles=ROLES[:2]), 4)
    assert [part["completion_ids"].flatten().tolist() for part in parts] == [[0, 2], [1, 3]]


def test_before_is_called_with_each_micro_batch():
    some = [replace(row([1], [number]), role=ROLES[number % 2]) for number in range(4)]
    announced = []

    def role_of_last(part):
        return torch.full(part["completion_ids"].shape, announced[-1])

    def before(part):
        announced.append(part["role"][0].item())

    found = map_micro_batches(pad_rows(some, PAD, roles=ROLES[:2]), 3, role_of_last, before)
    assert found.flatten().tolist() == [0.0, 1.0, 0.0, 1.0]
