"""Sampling with seeds: common random numbers with one seed, the right distribution with any."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LogitsProcessorList

from hf_credit.policies.seeded_draws import SeededDraws, seeded

CPU = torch.device("cpu")


def draws(seeds: list[int | None], scores: torch.Tensor, steps: int = 1) -> torch.Tensor:
    processor = SeededDraws(seeds, LogitsProcessorList(), CPU)
    return torch.stack([processor(torch.zeros(len(seeds), 1), scores).argmax(dim=-1) for _ in range(steps)])


def test_rows_with_one_seed_have_common_random_numbers_in_every_call() -> None:
    scores = torch.randn(1, 50, generator=torch.Generator().manual_seed(0)).expand(4, 50)
    first = draws([1, 2, 1, 2], scores, steps=20)
    assert torch.equal(first[:, 0], first[:, 2])
    assert torch.equal(first[:, 1], first[:, 3])
    assert not torch.equal(first[:, 0], first[:, 1])
    assert torch.equal(draws([2, 1], scores[:2], steps=20), first[:, [1, 0]])
    assert len(set(first[:, 0].tolist())) > 5  # each token has new random numbers


def test_every_row_has_its_own_distribution() -> None:
    scores = torch.tensor([[0.5, 0.3, 0.2]]).log().expand(4_000, 3)
    for seeds in (list(range(4_000)), [None] * 4_000):
        shares = draws(seeds, scores)[0].bincount(minlength=3) / 4_000
        for share, probability in zip(shares.tolist(), (0.5, 0.3, 0.2), strict=True):
            assert abs(share - probability) < 4 * math.sqrt(probability * (1 - probability) / 4_000)


def test_rows_without_a_seed_use_torchs_generator() -> None:
    scores = torch.zeros(3, 1000)
    torch.manual_seed(0)
    first = draws([None, 5, None], scores)
    torch.manual_seed(0)
    assert torch.equal(draws([None, 5, None], scores), first)
    assert not torch.equal(draws([None, 5, None], scores)[0, 0], first[0, 0])
    assert torch.equal(draws([5], scores[:1])[0, 0], first[0, 1])


def test_warpers_still_exclude_tokens(micro_policy: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(micro_policy)
    tokenizer = AutoTokenizer.from_pretrained(micro_policy)
    ids = torch.tensor([tokenizer("1 2 3")["input_ids"]] * 200)
    config = GenerationConfig(
        max_new_tokens=1,
        do_sample=True,
        top_k=3,
        temperature=2.0,
        eos_token_id=1,
        pad_token_id=0,
        disable_compile=True,
    )
    settings, processors = seeded(config, list(range(200)), CPU)
    replies = model.generate(
        ids, attention_mask=torch.ones_like(ids), generation_config=settings, logits_processor=processors
    )
    allowed = model(ids[:1]).logits[0, -1].topk(3).indices.tolist()
    assert set(replies[:, -1].tolist()) == set(allowed)


def test_greedy_decoding_needs_no_seed() -> None:
    config = GenerationConfig(do_sample=False)
    assert seeded(config, [1], CPU) == (config, [])
