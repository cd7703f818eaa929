"""Measures how much signal methods have: real trainers at a learning rate of 0, whose gradients are projected."""

from __future__ import annotations

import gc
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch import Tensor, nn
from transformers import PrinterCallback, ProgressCallback

from hf_credit.collectors import Collector, Group, RolloutBatch, Single, Tree, Verified
from hf_credit.diagnostics.signal import Played, SignalDiagnosis, cosine, signal
from hf_credit.environments.randomness import derive
from hf_credit.methods import DecisionCredits
from hf_credit.rollouts import Ledger
from hf_credit.trainers.callbacks import EpisodeCallback, WarnWithoutSignal
from hf_credit.trainers.ranks import shards_weights

WIDTH = 8191  # a prime, so that no two numbers of one row or column of a matrix meet in the projection
_CHUNK = 128 * WIDTH  # numbers that are projected at once
_SIGNS = (torch.arange(256)[:, None] >> torch.arange(8) & 1) * 2.0 - 1  # of each byte, eight

OUTCOME = "outcome_reward"

Enough = Callable[[Sequence[Played]], bool]
"""Whether no further collection of a method is needed after these."""

NO_UPDATE: Mapping[str, Any] = {
    "learning_rate": 0.0,
    "lr_scheduler_type": "constant",
    "lr_scheduler_kwargs": None,
    "optim": "sgd",  # which keeps no moments
    "beta": 0.0,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "critic_first_updates": 0,
    "max_sampled_tokens": None,
    "logging_strategy": "steps",
    "logging_steps": 1,
    "log_episodes": 0,
    "log_completions": False,
    "save_strategy": "no",
    "eval_strategy": "no",
    "eval_on_start": False,
    "load_best_model_at_end": False,
    "report_to": "none",
    "push_to_hub": False,
    "resume_from_checkpoint": None,
}
"""Fields of a config with which a trainer plays, credits and learns as ever, and its policy stays as it is."""


class Projected:
    """A random projection of gradients that keeps their inner products, in expectation over its signs.

        p[j] = sum over i with i mod n = j of s[i] g[i],   s[i] = -1 or 1 with equal probability

    as in a count sketch (Charikar, Chen and Farach-Colton, 2002) whose buckets are dealt out in turn:
    E <p, p'> = <g, g'>, with a variance of about 2 |g|^2 |g'|^2 / n, and exactly <g, g'> for at most n parameters.
    Signs are drawn a piece at a time, equal in every call, so nothing of the size of the gradient is kept.

    Args:
        width: n.
        seed: of the signs.
    """

    def __init__(self, width: int = WIDTH, seed: int = 0) -> None:
        self.width, self.seed = width, seed

    def __call__(self, parameters: Iterable[nn.Parameter]) -> Tensor:
        """Returns the projection of the gradients of parameters, of shape (n,), on the CPU; 0 where there is none."""
        found, begin = torch.zeros(self.width, dtype=torch.float64), 0
        for number, parameter in enumerate(parameters):
            if parameter.grad is not None:
                for place, piece in enumerate(parameter.grad.detach().flatten().split(_CHUNK)):
                    signs = torch.Generator(piece.device).manual_seed(derive(self.seed, number, place) % 2**63)
                    found += self._folded(piece, signs, (begin + place * _CHUNK) % self.width)
            begin += parameter.numel()
        return found

    def _folded(self, piece: Tensor, signs: torch.Generator, begin: int) -> Tensor:
        bits = torch.randint(256, (-(-len(piece) // 8),), dtype=torch.uint8, device=piece.device, generator=signs)
        signed = piece.float() * _SIGNS.to(piece.device)[bits.int()].flatten()[: len(piece)]
        whole = nn.functional.pad(signed, (begin, -(begin + len(piece)) % self.width))
        return whole.view(-1, self.width).sum(dim=0).double().cpu()


class Kept:
    """Plays each collection once, for all methods with the collector."""

    def __init__(self, inner: Collector) -> None:
        self.inner = inner
        # No field, which a run's record would write down.
        self.played: dict[int, tuple[RolloutBatch, Ledger, Sequence[Any]]] = {}

    def __call__(self, rows: Sequence[Any], context: Any, memory: Any = None) -> RolloutBatch:
        if context.update not in self.played:
            before = context.trainer.ledger
            collected = self.inner(rows, context, memory)
            self.played[context.update] = collected, context.trainer.ledger - before, rows
        return self.played[context.update][0]


class Collections(EpisodeCallback):
    """Keeps the projected gradients of a trainer's updates, and what they played.

    Args:
        trainer: with the settings `NO_UPDATE`, whose generations serve one update each.
        projected: equal for all methods that are compared.
        kept: of methods before; a collector of their kind is not played again.
        enough: ends the collections.

    Where processes share the weights or gradients of the policy, it ends after one and measures nothing.
    """

    def __init__(self, trainer: Any, projected: Projected, kept: list[Kept], enough: Enough) -> None:
        accelerator = trainer.accelerator
        self.whole = not shards_weights(accelerator) and accelerator.distributed_type != DistributedType.DEEPSPEED
        self.trainer, self.projected, self.enough = trainer, projected, enough
        self.gradients: list[Tensor] = []
        self.played: list[Played] = []
        for default in (ProgressCallback, PrinterCallback, WarnWithoutSignal):
            trainer.remove_callback(default)
        trainer.add_callback(self)
        self._kept = self._keep(kept)

    def run(self) -> None:
        """Plays them all, and lets the trainer go."""
        self.trainer.args.max_grad_norm = 0.0  # clips nothing; critics, which are made, clip as ever
        self.trainer.train()
        del self.trainer
        gc.collect()  # a trainer and its callbacks know each other

    def _keep(self, kept: list[Kept]) -> Kept:
        """Lets the trainer's collector play only what no method before it played; verdicts are given anew."""
        method = self.trainer.method
        judge = method.collector if isinstance(method.collector, Verified) else None
        inner = method.collector if judge is None else judge.inner
        shared = isinstance(inner, Single | Group | Tree) and method.wrap is None
        found = next((one for one in kept if shared and one.inner == inner), None)
        if found is None:
            found = Kept(inner=inner)
            kept.append(found)
        self.trainer.method = replace(method, collector=found if judge is None else replace(judge, inner=found))
        return found

    def on_episodes(self, trainer: Any, collected: RolloutBatch, advantages: DecisionCredits) -> None:
        _, cost, rows = self._kept.played[trainer.updates_collected]
        ends = [
            (
                json.dumps(rows[one.instance], sort_keys=True, default=str),
                one.episode.outcome,
                math.nan if one.later else one.episode.metrics.get("success", math.nan),
            )
            for one in collected.trained
        ]
        self.played.append(Played(cost=cost, outcomes=trainer.ranks.gather(ends)))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.whole:
            trained = (one for one in self.trainer.model.parameters() if one.requires_grad)
            self.gradients.append(self.projected(trained))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop |= not self.whole or self.enough(self.played)


def measure(
    name: str,
    makers: Mapping[str, Callable[[], Any]],
    enough: Enough = lambda played: False,
    seed: int = 0,
    **about: Any,
) -> SignalDiagnosis:
    """Measures the signal of methods with a trainer for each, one after the other, so that one model is in memory.

    Args:
        name: of the policy.
        makers: by method, makes its trainer, with `NO_UPDATE` and `max_steps` collections; all from one policy.
        enough: ends the collections of a method.
        seed: of the projection.
        **about: other fields of the result.
    """
    projected, kept, found = Projected(seed=seed), list[Kept](), dict[str, Collections]()
    for label, make in makers.items():
        found[label] = Collections(make(), projected, kept, enough)
        found[label].run()
        if not found[label].whole:
            break
    gradients = {label: torch.stack(one.gradients).numpy() for label, one in found.items() if len(one.gradients) > 2}
    signals = {label: signal(own, found[label].played) for label, own in gradients.items()}
    cosines = {}
    for first, second in itertools.combinations([label for label, one in signals.items() if one.measurable], 2):
        both = min(len(gradients[first]), len(gradients[second]))
        cosines[f"{first}, {second}"] = cosine(gradients[first][:both], gradients[second][:both])
    about["cost"] = sum((cost for one in kept for _, cost, _ in one.played.values()), about.get("cost", Ledger()))
    return SignalDiagnosis(name=name, signals=signals, cosines=cosines, **about)
