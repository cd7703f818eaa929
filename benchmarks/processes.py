"""Processes: a training step on one process and on two, each with one thread, on a machine with as many cores.

The same update (tasks, policy, settings) is made by one process and by several; the speed-up is how many times faster
the median step is on the clock. The profile is that of the first process; every moment belongs to one column:

- generation, forward, backward (with the exchange of gradients), optimizer: as in `step_time.py`;
- waiting: calls in which processes meet, to agree on how many contexts there are or to exchange metrics and credit;
- own: all else.

How fast several could be is measured, too, with a process's share of the rows and nobody to wait for: alone,
which tells what smaller batches cost, and side by side in as many processes that know nothing of each other, which
tells what the cores of this machine take from each other, too. The latter is the ceiling; of its processes the
slowest is reported.

`decode steps` are the tokens that each process generated one after the other, in all steps: a batch of contexts takes
as many as its longest reply.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from common import Clock, arguments, report
from parity import commit

WORK = ("generation", "forward", "backward", "optimizer", "waiting")


def work(folder: Path, options: argparse.Namespace) -> None:
    """The steps of one process of a run; the first one prints them."""
    import torch
    from players import credit_trainer, game_rows
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback

    from hf_credit import make

    torch.set_num_threads(1)
    environment = make("sudoku", size=4, blanks=options.blanks)
    policy = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    trainer: Any = credit_trainer(
        environment,
        policy,
        game_rows(environment, options.games, options.plays),
        history=options.history,
        per_device_train_batch_size=options.games * options.plays // processes,
        rows_per_forward=options.rows_at_once,
        max_steps=options.steps + 1,
        logging_steps=1,
    )
    clock, steps, decoded = Clock(time.perf_counter), list[dict[str, float]](), [0]
    for owner, method, label in (
        (trainer.ranks, "generate", "generation"),
        (trainer, "_compute_loss", "forward"),
        (trainer, "scores_of_rows", "forward"),
        (trainer.accelerator, "backward", "backward"),
        (trainer.accelerator, "clip_grad_norm_", "optimizer"),
        (trainer.accelerator, "gather", "waiting"),
        (trainer.ranks, "gather", "waiting"),
    ):
        clock.label(owner, method, label)

    def count(module: Any, args: Any, inputs: dict[str, Any]) -> None:
        decoded[0] += "fused_lm_head" not in inputs  # a pass that trains has it

    trainer.accelerator.unwrap_model(trainer.model).register_forward_pre_hook(count, with_kwargs=True)

    class Steps(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.flush()
            if state.global_step > 1:
                own = {label: clock.seconds[label] for label in WORK}
                steps.append({**own, "own": clock.seconds["rest"]})
            else:
                decoded[0] = 0
            clock.restart()

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Steps())
    trainer.train()
    found = {"steps": steps, "decoded": trainer.ranks.gather(decoded)}
    if trainer.accelerator.is_main_process:
        print("STEPS" + json.dumps(found), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def launched(processes: int, folder: Path, words: list[str], checkout: Path | None = None) -> dict[str, Any]:
    """The steps of a run of so many processes, with the library of another checkout if there is one."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    if checkout is not None:
        environment["PYTHONPATH"] = str(checkout.resolve() / "src")
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    command = [sys.executable, *(several if processes > 1 else ()), __file__, "--worker", str(folder), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("STEPS"):
            result: dict[str, Any] = json.loads(line.removeprefix("STEPS"))
            return result
    raise RuntimeError(f"the run of {processes} processes failed:\n{done.stderr[-3000:]}")


def unconnected(processes: int, folder: Path, words: list[str]) -> dict[str, Any]:
    """The slowest of so many runs of one process each, side by side."""
    with ThreadPoolExecutor(processes) as pool:
        found = list(pool.map(lambda _: launched(1, folder, words), range(processes)))
    return max(found, key=_step)


def _step(found: dict[str, Any]) -> float:
    """The median seconds of a step."""
    return median(sum(step.values()) for step in found["steps"])


def compare(options: argparse.Namespace, words: list[str]) -> list[dict[str, Any]]:
    from players import memorised_policy

    from hf_credit import make

    environment = make("sudoku", size=4, blanks=options.blanks)
    runs: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for part in memorised_policy(environment, options.history, options.games, options.epochs):
            part.save_pretrained(folder)
        runs["1 process"] = launched(1, Path(folder), words)
        for processes in range(2, options.processes + 1):
            share = [*words, "--games", str(options.games // processes)]
            runs[f"{processes} processes"] = launched(processes, Path(folder), words)
            if options.before is not None:
                name = f"{processes} processes at {commit(options.before)}"
                runs[name] = launched(processes, Path(folder), words, options.before)
            runs[f"1/{processes} of the rows, alone"] = launched(1, Path(folder), share)
            runs[f"1/{processes} of the rows each, unconnected"] = unconnected(processes, Path(folder), share)
    alone = _step(runs["1 process"])
    return [{"run": name, **_line(found, alone)} for name, found in runs.items()]


def _line(found: dict[str, Any], alone: float) -> dict[str, Any]:
    totals = [sum(step.values()) for step in found["steps"]]
    shares = {
        label: f"{median(step[label] / total for step, total in zip(found['steps'], totals, strict=True)):.1%}"
        for label in (*WORK, "own")
    }
    return {
        "step, s": _step(found),
        "speed-up": alone / _step(found),
        "decode steps": " and ".join(map(str, found["decoded"])),
        "generation, s": median(step["generation"] for step in found["steps"]),
        **shares,
    }


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(__doc__, blanks=8, games=64, epochs=100, plays=8, rows_at_once=32, steps=6, processes=2)
    parser.add_argument("--history", default="current")
    parser.add_argument("--before", type=Path, help="a checkout of another commit, measured as well")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments_given)
    if options.worker:
        work(options.worker, options)
        return
    words = sys.argv[1:] if arguments_given is None else arguments_given
    del options.worker  # of no interest to readers of the result
    rows = compare(options, words)
    text = (
        "4x4 Sudoku with a policy of 0.2M parameters; medians over steps, seconds on the clock. The aim is 1.7 times; "
        "what processes without any connection reach with their share of the rows is the most that can be had here."
    )
    report(options, "processes", text, rows)


if __name__ == "__main__":
    main()
