"""Importance ratios, worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import sampling_ratio

NAN = math.nan
MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")

# Ratios of 2, 4, 1/4 and, off the mask, 1000.
SAMPLING = torch.zeros(1, 4, dtype=torch.float64)
POLICY = torch.tensor([[2.0, 4.0, 0.25, 1000.0]], dtype=torch.float64).log()
MASK = torch.tensor([[1, 1, 1, 0]])


@pytest.mark.parametrize(
    ("mode", "clip_min", "clip_max", "expected"),
    [
        ("token_truncate", None, 3.0, [2, 3, 0.25, 1]),
        ("token_truncate", 0.5, 3.0, [2, 3, 0.5, 1]),
        ("token_truncate", None, None, [2, 4, 0.25, 1]),
        ("token_mask", None, 3.0, [2, 0, 0.25, 1]),
        ("token_mask", 0.5, 3.0, [2, 0, 0, 1]),
        ("token_mask", 0.5, None, [2, 4, 0, 1]),
        ("sequence_truncate", None, 3.0, [2]),
        ("sequence_truncate", None, 1.5, [1.5]),
        ("sequence_truncate", 2.5, None, [2.5]),
        ("sequence_mask", None, 3.0, [2]),
        ("sequence_mask", None, 1.5, [0]),
        ("sequence_mask", 2.5, None, [0]),
    ],
)
def test_ratios_by_hand(mode, clip_min, clip_max, expected):
    result = sampling_ratio(POLICY, SAMPLING, MASK, mode, clip_min, clip_max)
    torch.testing.assert_close(result, torch.tensor([expected], dtype=torch.float64))


def test_the_default_truncates_each_token_at_three():
    torch.testing.assert_close(
        sampling_ratio(POLICY, SAMPLING, MASK), torch.tensor([[2.0, 3.0, 0.25, 1.0]], dtype=torch.float64)
    )


@pytest.mark.parametrize("bound", [2.0, 0.25])
def test_a_ratio_on_a_bound_is_kept(bound):
    result = sampling_ratio(torch.tensor([[bound]]).log(), torch.zeros(1, 1), torch.ones(1, 1).int(), "token_mask")
    assert result.item() == pytest.approx(bound)


@pytest.mark.parametrize("mode", MODES)
def test_where_the_sampler_reported_nothing_the_ratio_is_one(mode):
    policy, sampling = torch.tensor([[-1.0, -2.0]]), torch.tensor([[NAN, NAN]])
    result = sampling_ratio(policy, sampling, torch.ones(1, 2).int(), mode)
    assert result.tolist() == ([[1.0]] if mode.startswith("sequence") else [[1.0, 1.0]])


@pytest.mark.parametrize("mode", MODES)
def test_a_token_without_report_leaves_the_others_as_they_are(mode):
    policy, sampling = torch.tensor([[math.log(2), -5.0]]), torch.tensor([[0.0, NAN]])
    result = sampling_ratio(policy, sampling, torch.ones(1, 2).int(), mode)
    torch.testing.assert_close(result, torch.tensor([[2.0]] if mode.startswith("sequence") else [[2.0, 1.0]]))


@pytest.mark.parametrize("mode", MODES)
def test_what_lies_off_the_mask_does_not_count(mode):
    policy, sampling = torch.tensor([[NAN, -0.5, 1e9]]), torch.tensor([[0.0, -0.5, -1e9]])
    assert (sampling_ratio(policy, sampling, torch.tensor([[0, 1, 0]]), mode) == 1).all()


@pytest.mark.parametrize(("mode", "expected"), [("token_truncate", 3.0), ("token_mask", 0.0)])
def test_a_token_that_the_sampler_held_impossible_stays_within_the_bounds(mode, expected):
    result = sampling_ratio(torch.tensor([[-1.0]]), torch.tensor([[-math.inf]]), torch.ones(1, 1).int(), mode)
    assert result.item() == expected


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=5), st.sampled_from(MODES))
def test_the_same_probabilities_have_ratio_one(logprobs, mode):
    row = torch.tensor([logprobs])
    assert (sampling_ratio(row, row, torch.ones(1, len(logprobs)).int(), mode) == 1).all()


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.booleans()), min_size=1, max_size=5))
def test_the_ratio_of_a_row_is_the_product_of_those_of_its_tokens(tokens):
    policy, sampling, mask = (torch.tensor([column]) for column in zip(*tokens, strict=True))
    of_tokens = sampling_ratio(policy, sampling, mask.int(), "token_truncate", None, None)
    of_row = sampling_ratio(policy, sampling, mask.int(), "sequence_truncate", None, None)
    assert of_row.item() == pytest.approx(math.prod(of_tokens[0].tolist()), rel=1e-4)


@pytest.mark.parametrize("mode", ["token", "truncate", "token_clip", "word_mask", "", "sequence_mask_"])
def test_an_unknown_mode_is_refused(mode):
    with pytest.raises(ValueError, match=r"mode must be one of token_truncate.*, got .*; (did you mean|pick one)"):
        sampling_ratio(POLICY, SAMPLING, MASK, mode)
