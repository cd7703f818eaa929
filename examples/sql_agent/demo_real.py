"""Warms a pretrained chat model up on this program, trains it by GRPO, and compares its answers before and after.

python demo_real.py MODEL    # in this folder; MODEL is a folder or an id, SmolLM2-135M-Instruct in `make demo-real`
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import trl
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).resolve().parent
HELD_OUT = ["--dataset", "held_out.jsonl", "--option", "agent=sql_agent:sql_agent"]


def with_tools(model, folder):
    """Copies a model of ChatML's marks whose own template has no tools, with one that has them."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    template = Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    tokenizer.save_pretrained(folder)
    AutoModelForCausalLM.from_pretrained(model).save_pretrained(folder)


def bfloat16():
    """Whether this machine computes in bfloat16 without emulation."""
    return torch.cuda.is_available() or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def run(*words):
    """A command of `hf-credit`, whose output is shown."""
    begun = time.monotonic()
    print("hf-credit", *words, flush=True)
    subprocess.run([sys.executable, "-m", "hf_credit.cli", *map(str, words)], check=True, cwd=HERE)
    print(f"{time.monotonic() - begun:.0f} seconds.\n", flush=True)


def machine():
    """Options that say what computes."""
    return ["--use_cpu", json.dumps(not torch.cuda.is_available()), "--bf16", json.dumps(bfloat16())]


def make_start(model, folder, updates=16):
    """Trains a model on play that is right in nine of ten questions, which leaves it much to learn."""
    play = ["--recipe", "real.yaml", "--script", "warm_up:Player", "--quality", 0.9, "--held-out", 0]
    learn = ["--learning_rate", 2e-4, "--lr_scheduler_type", "constant", "--per_device_train_batch_size", 16]
    learn += ["--max_steps", updates, "--gradient_checkpointing", "false"]
    with tempfile.TemporaryDirectory() as copy:
        with_tools(model, copy)
        run("warm-up", copy, *play, *learn, *machine(), "--output", folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--warm-up", type=int, default=16, help="updates of the warm-up")
    parser.add_argument("--updates", type=int, default=4, help="updates of GRPO")
    parser.add_argument("--episodes", type=int, default=40, help="held-out questions to answer before and after")
    parser.add_argument("--output", type=Path, default=Path("runs/real"))
    options = parser.parse_args()
    if not bfloat16():
        print("This processor has no bfloat16: all is computed in float32, which takes longer.")
    start, trained = (options.output.resolve() / name for name in ("start", "trained"))
    make_start(options.model, start, options.warm_up)
    asked = [*HELD_OUT, "--episodes", options.episodes]
    run("evaluate", start, *asked, "--output", start / "evaluation.json")
    learn = ["--max_steps", options.updates, *machine()]
    run("train", "real.yaml", "--model_name_or_path", start, "--output_dir", trained, *learn)
    run("evaluate", trained, *asked, "--output", trained / "evaluation.json")


if __name__ == "__main__":
    main()
