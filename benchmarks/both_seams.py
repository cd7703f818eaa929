"""Both seams on one GPU: what an update costs while a server plays the next episodes, and what it costs without.

A recipe of grpo on 9x9 Sudoku trains an adapter on a policy of random weights, which talks nonsense and never ends a
reply: every reply is as long as the recipe allows. Of each seam it says, over all updates but the first,

- tokens generated a second of the clock, and tokens of contexts and replies;
- waiting: the part of the time in which no update is computed, for want of episodes;
- the most GPU memory that the trainer's tensors took at once, in GiB. vLLM has the same share of the GPU in both.

The asynchronous seam is served by `vllm serve`, which gets each adapter by its path; the synchronous one has vLLM in
its process. Without a GPU, as a try, a small server of the tests plays for the one and transformers for the other,
and the numbers say nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml
from common import in_a_process, report
from large_policies import SHAPES, now, save_policy
from transformers import Qwen2Config, TrainerCallback

from hf_credit.trainers.recipes import TRAININGS, read_job
from hf_credit.trainers.training import build_trainer

SHAPES["Qwen2.5-1.5B"] = Qwen2Config(
    hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
    vocab_size=151936, max_position_embeddings=32768, tie_word_embeddings=True,
)  # fmt: skip
RANK, STALENESS, SHARE, POSITIONS = 16, 4, 0.35, 4608
GPU = torch.cuda.is_available()
MICRO_SERVER = Path(__file__).resolve().parents[1] / "tests" / "processes" / "micro_server.py"
UP_SECONDS = 300


@contextmanager
def served(policy: Path) -> Iterator[str]:
    """The address of a server that serves the policy."""
    if not GPU:
        sys.path.append(str(MICRO_SERVER.parent))
        server: Any = importlib.import_module(MICRO_SERVER.stem).MicroServer(policy).start()
        yield server.url
        server.stop()
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = {
        "port": port,
        "max-model-len": POSITIONS,
        "gpu-memory-utilization": SHARE,
        "max-lora-rank": RANK,
        "max-loras": STALENESS + 2,
    }
    command = ["vllm", "serve", str(policy), "--enable-lora", *(f"--{name}={value}" for name, value in flags.items())]
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with subprocess.Popen(command, env=environment, stdout=sys.stderr) as process:
        try:
            wait_for(f"http://127.0.0.1:{port}", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + UP_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"The server at {url} did not come up; look at what it printed.") from None
            time.sleep(0.5)


class Clock(TrainerCallback):
    """When each update ended, and what it generated."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.logs: list[dict[str, Any]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ends.append(now())

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "tokens/generated" in (logs or {}):
            self.logs.append(dict(logs))


def measure(seam: str, options: argparse.Namespace, url: str, policy: Path, scratch: Path) -> dict[str, Any]:
    """One line of the table."""
    on_gpu = {
        "asynchronous": {"weight_transfer": "trl"},
        "synchronous": {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_gpu_memory_utilization": SHARE,
            "vllm_max_model_length": POSITIONS,
        },
    }
    recipe = {
        "training": seam,
        "method": "grpo",
        "method_options": {"group_size": options.group},
        "task": "sudoku",
        "task_options": {"size": 9, "blanks": 40},
        "history": "current",
        "model_name_or_path": str(policy),
        "output_dir": str(scratch / seam),
        "instances_per_update": options.tasks,
        "per_device_train_batch_size": 1,
        "max_completion_length": options.reply_tokens,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "learning_rate": 1e-5,
        "max_steps": options.updates + 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "logging_steps": 1,
        **(
            {"vllm_server_base_url": url, "weight_transfer": "folder", "token_budget": options.token_budget}
            | {"gradient_accumulation_steps": options.passes, "max_staleness": STALENESS}
            if seam == "asynchronous"
            else {"beta": 0.0, "rows_per_forward": options.rows}
        ),
        **(
            {"dtype": "bfloat16", "bf16": True, "gradient_checkpointing": True, "use_peft": True, "lora_r": RANK}
            | on_gpu[seam]
            if GPU
            else {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}
        ),
    }
    path = scratch / f"{seam}.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    trainer = build_trainer(read_job(["--config", str(path)]))
    clock = Clock()
    trainer.add_callback(clock)
    trainer.train()
    seconds = clock.ends[-1] - clock.ends[0]
    waited = "perf/rollout_wait_s" if seam == "asynchronous" else "time/rollouts"
    later = clock.logs[1:]
    generated = sum(one["tokens/generated"] for one in later)
    read = sum(one["tokens/generated"] + one["tokens/context"] for one in later)
    return {
        "parameters": f"{sum(one.numel() for one in trainer.model.parameters()) / 1e9:.2f}B",
        "update, s": seconds / len(later),
        "tokens generated a second": generated / seconds,
        "tokens read a second": read / seconds,
        "waiting": f"{sum(one[waited] for one in later) / seconds:.0%}",
        "peak, GiB": torch.cuda.max_memory_allocated() / 2**30 if GPU else None,
    }


def main(arguments_given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="Qwen2.5-1.5B", help="of the policy")
    parser.add_argument("--tasks", type=int, default=8, help="of an update")
    parser.add_argument("--group", type=int, default=8, help="episodes of a task")
    parser.add_argument("--reply-tokens", type=int, default=1024, help="of every reply")
    parser.add_argument("--token-budget", type=int, default=16384, help="of a forward pass, asynchronous")
    parser.add_argument("--passes", type=int, default=8, help="forward passes of an update, asynchronous")
    parser.add_argument("--rows", type=int, default=8, help="of a forward pass, synchronous")
    parser.add_argument("--updates", type=int, default=6, help="that are measured, after one that is not")
    parser.add_argument("--policies", default="", help="a folder for the policies, to be used again")
    parser.add_argument("--only", choices=TRAININGS, help="one seam, in this process")
    parser.add_argument("--output", type=Path, help="a folder for the table, as NAME.md and NAME.json")
    options = parser.parse_args(arguments_given)
    if GPU and shutil.which("vllm") is None:
        raise SystemExit("Both seams generate with vLLM on a GPU, which is not installed: pip install '.[vllm]'.")
    with tempfile.TemporaryDirectory() as scratch:
        options.policies = options.policies or scratch
        policy = save_policy(options.shape, Path(options.policies) / options.shape)
        if options.only == "asynchronous":
            with served(policy) as url:
                print(json.dumps(measure(options.only, options, url, policy, Path(scratch))))
            return
        if options.only:
            print(json.dumps(measure(options.only, options, "", policy, Path(scratch))))
            return
        del options.only
        rows = []
        for seam in reversed(TRAININGS):
            rows.append({"shape": options.shape, "seam": seam, **in_a_process(__file__, seam, options)})
            print(rows[-1], file=sys.stderr, flush=True)
    text = "Updates of an adapter on a policy of random weights, by both seams, seconds of the clock."
    report(options, "both_seams", text, rows)


if __name__ == "__main__":
    main()
