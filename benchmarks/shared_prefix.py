"""Shared prefix: the time of a training step whose rows are alternatives at one long context.

A step is forward and backward of the trainer's loss over one micro-batch, as `CreditTrainer.compute_loss` makes it
and accelerate's `backward`; collecting episodes and the optimizer are not part of it. The rows are alternatives of
random tokens behind one random prompt, all with an advantage of their own.

The sides differ in the setting `share_prompts` alone. Without it every row reads the prompt by itself, as in TRL.
With it the prompt is computed once, and each alternative attends to it. Both give the same gradient: the table shows
the largest difference of a gradient's entry, in relation to the largest entry of the same tensor.

Seconds are those of the process on a processor, with one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from random import Random
from statistics import median
from typing import Any

import torch
from common import arguments, cpu_seconds, report_of_one_thread, take_turns
from players import credit_trainer, game_rows

from hf_credit import make
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer
from hf_credit.rollouts import Row
from hf_credit.rollouts.batches import pad_rows

TEXT = (
    "Forward and backward of the loss over alternatives that share a prompt, single precision; medians over "
    "interleaved repeats, CPU seconds of one thread. The aim is 1.25 times as fast at a prefix of 4,096 tokens."
)
ALTERNATIVES = 4
COMPLETION = 64
"""Tokens of an alternative."""


def alternatives(prefix: int, vocabulary: int, pad_token_id: int) -> dict[str, torch.Tensor]:
    """The batch of alternatives at one context of `prefix` tokens."""
    draws = Random(prefix)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(draws.randrange(6, vocabulary) for _ in range(count))

    context = tokens(prefix)
    rows = [
        Row(
            prompt_ids=context,
            completion_ids=tokens(COMPLETION),
            loss_mask=(1,) * COMPLETION,
            advantages=(draws.uniform(-1, 1),) * COMPLETION,
            logprobs=None,
        )
        for _ in range(ALTERNATIVES)
    ]
    batch = pad_rows(rows, pad_token_id)
    batch["num_items_in_batch"] = batch["tool_mask"].sum()
    return batch


def step(trainer: Any, batch: dict[str, torch.Tensor], share: bool) -> Callable[[], float]:
    """One step, which leaves its gradient and returns its seconds."""

    def run() -> float:
        trainer.args.share_prompts = share
        trainer.model.zero_grad()
        begun = cpu_seconds()
        trainer.accelerator.backward(trainer.compute_loss(trainer.model, batch))
        return cpu_seconds() - begun

    return run


def difference(trainer: Any, batch: dict[str, torch.Tensor]) -> float:
    """The largest difference of the two gradients' entries, in relation to the largest entry of their tensor."""
    gradients = []
    for share in (False, True):
        step(trainer, batch, share)()
        gradients.append([parameter.grad.clone() for parameter in trainer.model.parameters()])
    return max(((own - other).abs().max() / other.abs().max()).item() for other, own in zip(*gradients, strict=True))


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    environment = make("sudoku", size=4)
    tokenizer = build_tokenizer(environment)
    prefixes = [options.prefix // 8, options.prefix // 4, options.prefix]
    size = MicroConfig(hidden_size=options.hidden_size, layers=options.layers, heads=max(options.hidden_size // 64, 1))
    policy = build_model(tokenizer, size, context=options.prefix + COMPLETION), tokenizer
    trainer = credit_trainer(
        environment, policy, game_rows(environment, 2, 2), 2, per_device_train_batch_size=ALTERNATIVES
    )
    trainer.current_gradient_accumulation_steps = 1  # which TRL's loss divides by, and `train` would set
    trainer.model.train()
    table = []
    for prefix in prefixes:
        batch = alternatives(prefix, len(tokenizer), tokenizer.pad_token_id)
        apart = difference(trainer, batch)
        sides = {"each row by itself": False, "prompt shared": True}
        seconds = take_turns({name: step(trainer, batch, share) for name, share in sides.items()}, options.repeats)
        reference = seconds["each row by itself"]
        for name, taken in seconds.items():
            table.append(
                {
                    "parameters": f"{trainer.model.num_parameters() / 1e6:.1f}M",
                    "prefix": prefix,
                    "alternatives": f"{ALTERNATIVES} of {COMPLETION}",
                    "prompt": name,
                    "step, s": median(taken),
                    "times as fast": median(other / own for own, other in zip(taken, reference, strict=True)),
                    "gradient's difference": f"{apart:.1e}" if sides[name] else None,
                }
            )
    return table


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(__doc__, prefix=4096, hidden_size=256, layers=4, repeats=5)
    report_of_one_thread(parser, arguments_given, "shared_prefix", compare, TEXT)


if __name__ == "__main__":
    main()
