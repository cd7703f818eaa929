"""The log-probabilities of replies, compared with a softmax of one token at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from hf_credit.policies import reply_logprobs as module
from hf_credit.policies.reply_logprobs import reply_logprobs


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 8}
    config = Qwen3Config(vocab_size=11, num_attention_heads=2, num_key_value_heads=2, **sizes)
    return Qwen3ForCausalLM(config).train()


def one_by_one(model: Any, context: tuple[int, ...], reply: tuple[int, ...], temperature: float) -> list[float]:
    found = []
    for at, token in enumerate(reply):
        logits = model(torch.tensor([[*context, *reply[:at]]])).logits[0, -1].double() / temperature
        found.append(logits.log_softmax(-1)[token].item())
    return found


def test_log_probabilities_do_not_depend_on_the_batch(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [((1, 2, 3), (4, 5)), ((6,), (7,)), ((1, 2), ()), ((9, 8, 7, 6), (5, 4, 3))]
    for tokens_at_once in (2**16, 7):  # all in one pass, and each in one of its own
        monkeypatch.setattr(module, "_TOKENS_AT_ONCE", tokens_at_once)
        for own, (context, reply) in zip(reply_logprobs(model, pairs, 0.7), pairs, strict=True):
            assert own == pytest.approx(one_by_one(model, context, reply, 0.7), abs=1e-5)
    assert model.training


def test_without_replies_the_result_is_empty(model: Any) -> None:
    assert reply_logprobs(model, []) == []
