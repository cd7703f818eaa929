"""Memory of a team: the peak of a training step of K agents with an adapter each, beside that of one agent.

Measured on a small policy: a vote of K, as many replies and rows in every step whatever K is, each K in a process of
its own (the kernel's resident set, so Linux only). Computed for the shape of a 7B model: weights in 16 bits, and of
every adapter weights, gradients and two moments in 32 bits. Activations are not counted there, which one agent and
three share, so that the true ratio is closer to 1.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

import torch
from common import arguments, in_a_process, measured_alone, memory, report, take_turns
from peft import LoraConfig, get_peft_model
from players import settings
from transformers import AutoModelForCausalLM, Qwen2Config

from hf_credit import CreditConfig, CreditTrainer
from hf_credit.collaborations.sum_vote import number_key, sum_score, sum_task
from hf_credit.collaborations.voting import Voting
from hf_credit.methods import make
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of

AIM = 1.15
SEVEN_B = Qwen2Config(
    hidden_size=3584,
    intermediate_size=18944,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
    vocab_size=152064,
    tie_word_embeddings=False,
)
"""The shape of Qwen2.5-7B."""
_WEIGHT, _TRAINED = 2, 16  # bytes of a weight in 16 bits; of one trained in 32 bits, its gradient and two moments
TEXT = (
    "The most memory that a process took for the small policy and its training, medians over processes in turns, "
    "what the adapters of further agents should add to it, and what a team of a 7B model takes for weights, "
    f"gradients and moments. The aim is at most {AIM} times one agent for 7B."
)


def adapter(rank: int) -> LoraConfig:
    """An adapter on every linear layer."""
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")


def seven_billion(rank: int) -> tuple[int, int]:
    """How many weights the base of a 7B model has, and an adapter on it."""
    with torch.device("meta"):
        base: Any = AutoModelForCausalLM.from_config(SEVEN_B)
        frozen = base.num_parameters()
        return frozen, get_peft_model(base, adapter(rank)).get_nb_trainable_parameters()[0]


def measure(agents: int, options: argparse.Namespace) -> dict[str, float]:
    """The peak of a training in this process, above what it had before."""
    before = memory("VmRSS")
    names = [f"agent {number}" for number in range(agents)]
    team = Voting(dict.fromkeys(names, "vote"), sum_score, number_key, dict.fromkeys(names, "problem"), "first")
    rows = [sum_task(one, other) for one in range(6) for other in range(6)]
    texts = [" ".join(row["problem"] for row in rows), "vote 0 1 2 3 4 5", *names]
    tokenizer = tokenizer_of([*texts, "".join(map(chr, range(32, 127)))])
    size = MicroConfig(hidden_size=options.hidden_size, layers=options.layers, heads=4)
    model = build_model(tokenizer, size)
    instances = options.replies // (agents * 2)
    common = settings(instances, max_steps=options.steps, max_completion_length=8)
    args = CreditConfig(**{**common, "instances_per_update": instances, "role_adapters": names, "rows_per_forward": 2})
    from datasets import Dataset

    data = Dataset.from_list((rows * 20)[: instances * options.steps])
    trainer = CreditTrainer(
        model,
        team,
        args,
        data,
        method=make("grpo", group_size=2),
        peft_config=adapter(options.rank),
        processing_class=tokenizer,
    )
    trainer.train()
    trained = sum(one.numel() for one in trainer.model.parameters() if one.requires_grad)
    return {"peak": memory("VmHWM") - before, "adapter": trained / agents, "parameters": model.num_parameters()}


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    teams = range(1, options.agents + 1)
    measured = take_turns(
        {str(one): lambda one=one: in_a_process(__file__, one, options) for one in teams}, options.repeats
    )
    peaks = {name: median(one["peak"] for one in own) for name, own in measured.items()}
    small, (frozen, trained) = measured["1"][0], seven_billion(options.rank)
    table = []
    for agents in teams:
        large = _WEIGHT * frozen + agents * _TRAINED * trained
        table.append(
            {
                "agents": agents,
                "small policy": f"{small['parameters'] / 1e6:.1f}M",
                "its adapters": f"{small['adapter'] / 1e6:.2f}M",
                "measured, MB": peaks[str(agents)] / 1e6,
                "more than one agent, MB": (peaks[str(agents)] - peaks["1"]) / 1e6,
                "computed, MB": (agents - 1) * _TRAINED * small["adapter"] / 1e6,
                "7B, adapters": f"{trained / 1e6:.1f}M",
                "7B computed, GB": large / 1e9,
                "7B to one agent": large / (_WEIGHT * frozen + _TRAINED * trained),
            }
        )
    return table


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(__doc__, replies=24, hidden_size=512, layers=8, rank=16, agents=3, steps=2, repeats=3)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments_given)
    if measured_alone(options, measure):
        return
    report(options, "role_memory", TEXT, compare(options))


if __name__ == "__main__":
    main()
