"""Rows that begin alike, drawn at random, and a small model that reads them packed or each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, Qwen3Config, Qwen3ForCausalLM
from transformers.masking_utils import AttentionMaskInterface
from trl.trainer.utils import add_fused_lm_head

from hf_credit.rollouts import Row
from hf_credit.trainers.asynchronous.attention import segment_attention
from hf_credit.trainers.asynchronous.packing import Sample, pack

NAME = "segments_in_tests"
VOCABULARY = 12  # few, so that rows often begin alike
AttentionInterface.register(NAME, segment_attention)
AttentionMaskInterface.register(NAME, lambda **kwargs: None)


def row(prompt: Sequence[int], completion: Sequence[int], **changed: Any) -> Row:
    """A row whose completion is in the loss, token t with an advantage of t + 1 and a log-probability of -t."""
    values: dict[str, Any] = {
        "prompt_ids": tuple(prompt),
        "completion_ids": tuple(completion),
        "loss_mask": (1,) * len(completion),
        "advantages": tuple(float(1 + place) for place in range(len(completion))),
        "logprobs": tuple(-float(place) for place in range(len(completion))),
    }
    return Row(**{**values, **changed})


def random_rows(draws: Random, count: int, longest: int = 12) -> list[Row]:
    """Rows that go on from parts of each other, with context between their actions."""
    found: list[Row] = []
    for _ in range(count):
        before = draws.choice(found) if found and draws.random() < 0.7 else None
        ids = [*before.prompt_ids, *before.completion_ids] if before else [draws.randrange(VOCABULARY)]
        ids = ids[: draws.randint(1, len(ids))] + draws.choices(range(VOCABULARY), k=draws.randint(0, longest))
        ids = ids if len(ids) > 1 else [*ids, 0]
        cut = draws.randint(1, len(ids) - 1)
        mask = [int(draws.random() < 0.6) for _ in ids[cut:]]
        found.append(
            row(
                ids[:cut],
                ids[cut:],
                loss_mask=tuple(mask),
                advantages=tuple(draws.gauss(0, 1) * one for one in mask),
                logprobs=tuple(-draws.random() * one for one in mask),
            )
        )
    return found


def samples_of(rows: Sequence[Row]) -> list[Sample]:
    """Those with a loss, in the order of their tokens."""
    samples = [one for one in map(Sample.of, rows) if one is not None]
    return sorted(samples, key=lambda one: one.ids.tolist())


def small_model(**changed: Any) -> Any:
    """With log-probabilities of its own, as TRL's trainer has them."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        attn_implementation=NAME,
        **changed,
    )
    model = Qwen3ForCausalLM(config)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model


def packed_log_probs(model: Any, samples: Sequence[Sample]) -> Tensor:
    """Of the targets of all samples, in their order, from one pass."""
    packed = pack(samples)
    largest = dict(zip(("tree_max_seqlen_q", "tree_max_seqlen_k"), packed["tree_max_seqlens"].tolist(), strict=True))
    names = ("input_ids", "position_ids", "shift_labels")
    outputs = model(
        **{name: packed[name][None] for name in names},
        **{name: value for name, value in packed.items() if name.startswith("tree_") and name != "tree_max_seqlens"},
        **largest,
        fused_lm_head=True,
    )
    return outputs.log_probs.flatten()[packed["token_index"]]


def separate_log_probs(model: Any, samples: Sequence[Sample]) -> Tensor:
    """The same from a pass for each sample, by the attention of transformers."""
    found = []
    model.set_attn_implementation("sdpa")
    for one in samples:
        logits = model(input_ids=torch.from_numpy(one.ids[None])).logits[0]
        scores = logits.log_softmax(-1)[torch.from_numpy(one.targets - 1)]
        found.append(scores.gather(1, torch.from_numpy(one.ids[one.targets])[:, None])[:, 0])
    model.set_attn_implementation(NAME)
    return torch.cat(found)
