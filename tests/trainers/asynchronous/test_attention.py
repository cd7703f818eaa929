"""Attention over packed trees: what each row sees by itself, no less and no more."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_trees import packed_log_probs, random_rows, row, samples_of, separate_log_probs, small_model

from hf_credit.trainers.asynchronous.attention import segment_attention

CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # sums of the same numbers in another order
WINDOW = {"sliding_window": 3, "use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"]}


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [small_model(), small_model(**WINDOW)]


def gradients(model: Any, values: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    (values * torch.arange(1, len(values) + 1)).sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 8))
def test_a_packed_tree_gives_the_log_probabilities_and_gradients_of_separate_rows(
    models: list[Any], seed: int, count: int
) -> None:
    samples = samples_of(random_rows(Random(seed), count))
    if not samples:
        return
    for model in models:
        packed, separate = packed_log_probs(model, samples), separate_log_probs(model, samples)
        torch.testing.assert_close(packed, separate, **CLOSE)
        for one, other in zip(gradients(model, packed), gradients(model, separate), strict=True):
            torch.testing.assert_close(one, other, **CLOSE)


def test_a_cap_on_logits_is_refused() -> None:
    nothing = torch.zeros(1, 1, 1, 1)
    with pytest.raises(ValueError, match=r"knows no cap on logits, got softcap=30\.0; train a model without one"):
        segment_attention(
            torch.nn.Identity(),
            nothing,
            nothing,
            nothing,
            None,
            tree_kv_index=torch.zeros(1, dtype=torch.long),
            tree_cu_seqlens_q=torch.tensor([0, 1]),
            tree_cu_seqlens_k=torch.tensor([0, 1]),
            softcap=30.0,
        )


def test_rows_that_begin_alike_are_read_once() -> None:
    model = small_model()
    samples = samples_of([row([1, 2, 3], [4, 5]), row([1, 2, 3], [4, 6]), row([1, 2, 3], [7])])
    read: list[int] = []
    model.model.layers[0].register_forward_pre_hook(lambda module, inputs: read.append(inputs[0].shape[1]))
    packed_log_probs(model, samples)
    # 1 2 3>4 4>5, then 4>6, then 3>7: a place that predicts another token is read again
    assert read == [6]
