"""Processors of the scores of a sampling: seeds of replies, for common random numbers, and log-probabilities."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)


class SeededDraws(LogitsProcessor):
    """Turns greedy decoding into sampling, by the Gumbel-max trick.

        argmax_v (log p(v) + g(v)) ~ p,   g(v) = -log(-log u(v)),   u(v) uniform on (0, 1)

    The numbers u of the n-th token depend on the row's seed and n only. So rows with the same seed have common random
    numbers, and each still follows its own distribution p (C3, Appendix L).

    Args:
        seeds: one for each row; `None` draws from torch's random generator.
        warpers: temperature, nucleus and others, which turn the model's scores into log p.
        device: of the scores.
    """

    def __init__(self, seeds: Sequence[int | None], warpers: LogitsProcessorList, device: torch.device) -> None:
        self.warpers = warpers
        given = sorted({seed for seed in seeds if seed is not None})
        # On the CPU, whose numbers do not depend on the accelerator.
        self._generators = [torch.Generator().manual_seed(seed % 2**63) for seed in given]
        index_of = {seed: index for index, seed in enumerate(given)}
        without = iter(range(len(given), len(given) + len(seeds)))
        self._without = sum(seed is None for seed in seeds)
        self._rows = torch.tensor([next(without) if seed is None else index_of[seed] for seed in seeds], device=device)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        width = scores.shape[-1]
        numbers = [torch.rand(width, generator=generator, dtype=torch.float64) for generator in self._generators]
        if self._without:
            numbers.extend(torch.rand(self._without, width, dtype=torch.float64))
        noise = -(-torch.stack(numbers).log()).log()
        warped = self.warpers(cast(torch.LongTensor, input_ids), cast(torch.FloatTensor, scores))
        logprobs = warped.double().log_softmax(dim=-1)
        return logprobs + noise.to(scores.device)[self._rows]


class SampledLogprobs(LogitsProcessor):
    """Keeps the log-probability of each sampled token, in nats, and changes no score.

    Args:
        config: of the sampling, whose warpers come before the log-probabilities.
    """

    def __init__(self, config: GenerationConfig) -> None:
        self._warpers = _warpers(config) if config.do_sample else LogitsProcessorList()
        self._kept: list[Tensor] = []
        self._next: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self._keep(input_ids)
        warped = self._warpers(cast(torch.LongTensor, input_ids), cast(torch.FloatTensor, scores))
        self._next = warped.float().log_softmax(dim=-1)
        return scores

    def of(self, sequences: Tensor) -> list[list[float]]:
        """Returns the log-probabilities of the sampled tokens of each row; called once, with the whole output."""
        self._keep(sequences)
        return torch.cat(self._kept, dim=1).tolist()

    def _keep(self, ids: Tensor) -> None:
        if self._next is not None:
            self._kept.append(self._next.gather(1, ids[:, -1:]))


def seeded(
    config: GenerationConfig, seeds: Sequence[int | None], device: torch.device
) -> tuple[GenerationConfig, LogitsProcessorList]:
    """Generation settings and a logits processor that sample as `config` does, but with seeds.

    Args:
        config: samples one reply to a context; greedy settings are returned unchanged.
        seeds: one for each context, or `None`.
    """
    if not config.do_sample:
        return config, LogitsProcessorList()
    greedy = copy.deepcopy(config)
    greedy.do_sample = False
    greedy.temperature = greedy.top_k = greedy.top_p = greedy.min_p = greedy.typical_p = None
    greedy.epsilon_cutoff = greedy.eta_cutoff = greedy.top_h = None
    return greedy, LogitsProcessorList([SeededDraws(seeds, _warpers(config), device)])


def _warpers(config: GenerationConfig) -> LogitsProcessorList:
    """The warpers with which transformers samples, in its order."""
    warpers = (
        (TemperatureLogitsWarper, config.temperature, config.temperature != 1.0),
        (TopHLogitsWarper, config.top_h, True),
        (TopKLogitsWarper, config.top_k, config.top_k),
        (TopPLogitsWarper, config.top_p, config.top_p is not None and config.top_p < 1.0),
        (MinPLogitsWarper, config.min_p, True),
        (TypicalLogitsWarper, config.typical_p, config.typical_p is not None and config.typical_p < 1.0),
        (EpsilonLogitsWarper, config.epsilon_cutoff, config.epsilon_cutoff),
        (EtaLogitsWarper, config.eta_cutoff, config.eta_cutoff),
    )
    return LogitsProcessorList([kind(value) for kind, value, applies in warpers if value is not None and applies])
