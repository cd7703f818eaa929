"""Samples whose random numbers are named by seeds, so that several replies can be drawn with the same ones."""

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
    """Turns the choice of the most probable token into a draw from the distribution (the Gumbel-max trick).

        argmax_v (log p(v) + g(v)),   g(v) = -log(-log u(v)),  u uniform,   is a draw from p

    The numbers u of the n-th token are a function of the row's seed and n. So two rows of one seed draw with the same
    numbers whatever their distributions, and each by itself has its distribution untouched (paper C3, Appendix L).

    Args:
        seeds: one a row; `None` draws from torch's random stream.
        warpers: temperature, nucleus and the like, which make p of the model's scores.
        device: where the scores are.
    """

    def __init__(self, seeds: Sequence[int | None], warpers: LogitsProcessorList, device: torch.device) -> None:
        self.warpers = warpers
        named = sorted({seed for seed in seeds if seed is not None})
        # The generators are the processor's own, whose numbers are the same beside every accelerator.
        self._generators = [torch.Generator().manual_seed(seed % 2**63) for seed in named]
        place = {seed: index for index, seed in enumerate(named)}
        unnamed = iter(range(len(named), len(named) + len(seeds)))
        self._fresh = sum(seed is None for seed in seeds)
        self._rows = torch.tensor([next(unnamed) if seed is None else place[seed] for seed in seeds], device=device)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        width = scores.shape[-1]
        numbers = [torch.rand(width, generator=generator, dtype=torch.float64) for generator in self._generators]
        if self._fresh:
            numbers.extend(torch.rand(self._fresh, width, dtype=torch.float64))
        noise = -(-torch.stack(numbers).log()).log()
        warped = self.warpers(cast(torch.LongTensor, input_ids), cast(torch.FloatTensor, scores))
        logprobs = warped.double().log_softmax(dim=-1)
        return logprobs + noise.to(scores.device)[self._rows]


def seeded(
    config: GenerationConfig, seeds: Sequence[int | None], device: torch.device
) -> tuple[GenerationConfig, LogitsProcessorList]:
    """The generation settings and the processor that draw what `config` draws, with seeds.

    Args:
        config: that samples one reply to a context; one that takes the most probable token is left as it is.
        seeds: one for each context.
        device: where the model is.
    """
    if not config.do_sample:
        return config, LogitsProcessorList()
    greedy = copy.deepcopy(config)
    greedy.do_sample = False
    greedy.temperature = greedy.top_k = greedy.top_p = greedy.min_p = greedy.typical_p = None
    greedy.epsilon_cutoff = greedy.eta_cutoff = greedy.top_h = None
    return greedy, LogitsProcessorList([SeededDraws(seeds, _warpers(config), device)])


def _warpers(config: GenerationConfig) -> LogitsProcessorList:
    """What transformers itself does to the scores when it samples, in its order."""
    warpers = LogitsProcessorList()
    if config.temperature is not None and config.temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(config.temperature))
    if config.top_h is not None:
        warpers.append(TopHLogitsWarper(top_h=config.top_h))
    if config.top_k:
        warpers.append(TopKLogitsWarper(top_k=config.top_k))
    if config.top_p is not None and config.top_p < 1.0:
        warpers.append(TopPLogitsWarper(top_p=config.top_p))
    if config.min_p is not None:
        warpers.append(MinPLogitsWarper(min_p=config.min_p))
    if config.typical_p is not None and config.typical_p < 1.0:
        warpers.append(TypicalLogitsWarper(mass=config.typical_p))
    if config.epsilon_cutoff:
        warpers.append(EpsilonLogitsWarper(epsilon=config.epsilon_cutoff))
    if config.eta_cutoff:
        warpers.append(EtaLogitsWarper(epsilon=config.eta_cutoff))
    return warpers
