"""Large policies: the memory and the seconds of an update of each paper's recipe, with billions of parameters.

Each recipe runs as it stands but for what CASES names: one GPU, and fewer tasks, of which as many are in memory at
once as the recipe has it. The policy has the shape of the model that is named, weights drawn at random in bfloat16 and
a tokenizer of as many tokens, so nothing is fetched. It talks nonsense and never ends a reply: every reply is as long
as the recipe allows, which is the worst case for memory, and few tasks go beyond their first turn. What is learned
from it says nothing.

- generation (with vLLM, where a recipe has it, and handing it the weights), forward, backward, optimizer: the
  policy's own work;
- critics: what they say and how they learn;
- own: what is neither, this library's, TRL's and transformers': templates, tokens, worlds, credit, layout, metrics;
- peak: the most GPU memory that tensors took at once, in GiB; vLLM fills its share of the GPU, whatever it needs.

Seconds are those of the clock, all of the GPU's work before a moment included; of each update but the first.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from itertools import islice, product
from pathlib import Path
from statistics import median
from string import ascii_lowercase
from typing import Any, NamedTuple

import torch
import yaml
from common import in_a_process, policy_passes, report, timed_updates
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3Config
from trl.generation import vllm_generation

from hf_credit import make
from hf_credit.policies.generation import PrefixSampler
from hf_credit.policies.micro import tokenizer_of
from hf_credit.recipes import RECIPES
from hf_credit.rollouts.scripts import random_texts
from hf_credit.trainers.recipes import read_job
from hf_credit.trainers.training import build_trainer

WORK = ("generation", "forward", "backward", "optimizer", "critics")

SHAPES: dict[str, Any] = {
    "Qwen2.5-7B": Qwen2Config(
        hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
        vocab_size=152064, max_position_embeddings=32768,
    ),
    "Qwen3-4B": Qwen3Config(
        hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
        head_dim=128, vocab_size=151936, max_position_embeddings=40960, tie_word_embeddings=True,
    ),
    "tiny": Qwen3Config(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=16, vocab_size=4096, max_position_embeddings=32768, tie_word_embeddings=True,
    ),
}  # fmt: skip
"""Sizes of the published models, and one for a try without a GPU."""


class Case(NamedTuple):
    """A recipe, the shape of its policy, and what else is changed in it."""

    recipe: str
    shape: str
    changed: dict[str, Any]


VLLM = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_gpu_memory_utilization": 0.35,
    "vllm_max_model_length": 4608,
}
CASES = {
    "VPR (LoRA)": Case(
        "qwen3_4b_sudoku_lora",
        "Qwen3-4B",
        {"instances_per_update": 8, "max_completion_length": 1024, "warmup_steps": 0},
    ),
    "C3 (LoRA)": Case("qwen3_4b_math_lora", "Qwen3-4B", {"instances_per_update": 16, "warmup_steps": 0}),
    "T3 with PPO (LoRA)": Case(
        "qwen2_5_7b_guess_numbers_lora",
        "Qwen2.5-7B",
        {"instances_per_update": 16, "steps_per_generation": 2},
    ),
    "CCPO (two role adapters)": Case(
        "qwen2_5_1_5b_math",
        "Qwen2.5-7B",
        {"instances_per_update": 8, "max_completion_length": 512, **VLLM},
    ),
    "CVT-RL (LoRA)": Case(
        "qwen2_5_7b_evidence_lora",
        "Qwen2.5-7B",
        {"instances_per_update": 2, "group_size": 4, "max_completion_length": 128},
    ),
    "CVT-RL (QLoRA)": Case(
        "qwen2_5_7b_evidence_lora",
        "Qwen2.5-7B",
        {"instances_per_update": 2, "group_size": 4, "max_completion_length": 128, "load_in_4bit": True},
    ),
}


def save_policy(shape: str, folder: Path) -> Path:
    """A policy of a shape with random weights, saved once."""
    if (folder / "config.json").is_file():
        return folder
    config = SHAPES[shape]
    texts = [*random_texts(make("sudoku", size=9), 2), *random_texts(make("guess_numbers"), 2)]
    spare = config.vocab_size - len(tokenizer_of(texts)) - len(ascii_lowercase)
    words = islice(map("".join, product(ascii_lowercase, repeat=4)), spare)
    tokenizer = tokenizer_of([*texts, " ".join(words)])
    config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_problems(folder: Path) -> Path:
    """Rows as a set of mathematical problems has them."""
    path = folder / "problems.jsonl"
    rows = [{"problem": f"What is {one} + {one}?", "answer": str(2 * one)} for one in range(256)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def now() -> float:
    """The clock, once the GPU has done what it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(case: Case, policy: Path, updates: int, scratch: Path, vllm: str) -> dict[str, Any]:
    """One line of the table."""
    recipe = {
        **yaml.safe_load(RECIPES[case.recipe].read_text(encoding="utf-8")),
        **case.changed,
        "model_name_or_path": str(policy),
        "output_dir": str(scratch / "run"),
        "save_strategy": "no",
        "report_to": "none",
        "log_completions": False,
        "disable_tqdm": True,
        **({"use_vllm": False} if vllm == "none" else {}),
        **({} if torch.cuda.is_available() else {"use_cpu": True, "bf16": False}),
    }
    if "problem_sets" in recipe:
        recipe |= {"problem_sets": [], "evaluation_problem_sets": [], "dataset_name": str(save_problems(scratch))}
    (scratch / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    job = read_job(["--config", str(scratch / "recipe.yaml")])
    # A generation, and every step of the optimizer that learns from it.
    steps = job.args.num_iterations * job.args.steps_per_generation // job.args.gradient_accumulation_steps
    job.args.max_steps = (updates + 1) * steps
    if vllm == "eager" and job.args.use_vllm:
        vllm_generation.LLM = functools.partial(vllm_generation.LLM, enforce_eager=True)
    trainer = build_trainer(job)
    requests = trainer.adapters and trainer.adapters.requests
    labelled = [
        (trainer.ranks, "generate", "generation"),
        (PrefixSampler, "mixed", "generation"),
        *((trainer.vllm, call, "generation") for call in ("sync_weights", "generate") if trainer.vllm),
        *((requests, call, "generation") for call in ("refresh", "together") if requests is not None),
        *policy_passes(trainer),
        (trainer, "logprobs_of_rows", "forward"),
        *((trainer.projection, "keep", "forward") for _ in range(trainer.projection is not None)),
        (trainer.context, "values", "critics"),
        *((critic, "learn", "critics") for critic in trainer.critics.values()),
    ]
    found = timed_updates(trainer, labelled, steps=steps, now=now)
    totals = [sum(update.values()) for update in found]
    shares = [
        f"{median(update[label] / total for update, total in zip(found, totals, strict=True)):.1%}"
        for label in (*WORK, "rest")
    ]
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    return {
        "parameters": f"{parameters / 1e9:.2f}B",
        "update, s": median(totals),
        **dict(zip((*WORK, "own"), shares, strict=True)),
        "peak, GiB": torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None,
    }


def main(arguments_given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES), help="which, with commas between them")
    parser.add_argument("--shape", default="", help="the shape of all policies; as CASES has it if empty")
    parser.add_argument("--reply-tokens", type=int, default=0, help="of the longest reply; as CASES has it if 0")
    parser.add_argument("--updates", type=int, default=2, help="that are measured, after one that is not")
    parser.add_argument(
        "--vllm",
        choices=("compiled", "eager", "none"),
        default="compiled",
        help="how it generates where a recipe has it: eager is slower and up sooner, none is transformers",
    )
    parser.add_argument("--policies", default="", help="a folder for the policies, to be used again")
    parser.add_argument("--only", choices=CASES, help="one case, in this process")
    parser.add_argument("--output", type=Path, help="a folder for the table, as NAME.md and NAME.json")
    options = parser.parse_args(arguments_given)
    with tempfile.TemporaryDirectory() as scratch:
        if options.only:
            case = CASES[options.only]
            if options.reply_tokens:
                case.changed["max_completion_length"] = options.reply_tokens
            shape = options.shape or case.shape
            policy = save_policy(shape, Path(options.policies or scratch) / shape)
            print(json.dumps(measure(case, policy, options.updates, Path(scratch), options.vllm)))
            return
        options.policies = options.policies or scratch
        del options.only
        rows = []
        for name in options.cases.split(","):
            rows.append({"case": name, **in_a_process(__file__, name, options)})
            print(rows[-1], file=sys.stderr, flush=True)  # the next may be one too large
    text = "An update of each recipe with a policy of random weights, medians over updates, seconds of the clock."
    report(options, "large_policies", text, rows)


if __name__ == "__main__":
    main()
