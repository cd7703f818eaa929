"""Fits of a critic whose sequences lie on one process or on several; run by tests, alone or by torchrun."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from hf_credit import make
from hf_credit.critics.critic import Critic, CriticConfig, context_batch
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer

CONTEXTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [6, 5], [7, 7, 7, 7], [12, 5, 9], [10, 11]]
RETURNS = torch.tensor([1.0, 0.0, 0.5, -1.0, 2.0, 0.25, 1.5])


def fit(critic: Critic, which: slice) -> dict[str, float]:
    """A fit on one target for each context, at its end."""
    batch, targets = context_batch(CONTEXTS[which], critic.pad_token_id), RETURNS[which, None]
    return critic.fit(batch, targets, torch.ones_like(targets))


def fitted(accelerator: Accelerator) -> dict[str, Any]:
    """The weights and the metrics after three fits, resumed before the last, for the sequences of all processes."""
    rank, processes = accelerator.process_index, accelerator.num_processes
    tokenizer = build_tokenizer(make("tic_tac_toe"), episodes=1)
    policy = build_model(tokenizer, MicroConfig(hidden_size=16, heads=2))

    def critic(seed: int) -> Critic:
        # Processes that did not start alike are made alike.
        backbone = build_model(tokenizer, MicroConfig(hidden_size=16, heads=2, seed=seed + rank))
        config = CriticConfig(learning_rate=1e-2, passes=2, mini_batch_rows=3, micro_batch_rows=2, clip=0.5)
        return Critic(backbone, policy, tokenizer, accelerator, config)

    def part(first: int) -> slice:
        """All sequences; of two processes, the first has `first` and the second the others."""
        return slice(None) if processes == 1 else (slice(first, None) if rank else slice(first))

    first = critic(seed=0)
    metrics = [fit(first, part(split)) for split in (5, 7)]
    second = critic(seed=5)
    second.load_state(first.state())
    metrics.append(fit(second, part(1)))
    return {
        "weights": {name: tensor.detach().clone() for name, tensor in second.weights.parameters.items()},
        "metrics": metrics,
        "processes": processes,
    }


if __name__ == "__main__":
    here = Accelerator(cpu=True)
    torch.save(fitted(here), Path(sys.argv[1]) / f"{here.process_index}.pt")
    here.end_training()
