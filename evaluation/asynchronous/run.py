"""Trains one policy synchronously and through a vLLM server, at equal tokens. Finished cells are skipped.

.venv-vllm/bin/python evaluation/asynchronous/run.py --work runs/asynchronous --workers 1
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from finished_cells import common_seeds, interval, mean, read, write
from running import ON_A_PROCESSOR, one_cell, parse_options, prepare_process, results_folder, run_cells, write_whole

from hf_credit.evaluation.markdown import table
from hf_credit.evaluation.runs import versions
from hf_credit.evaluation.statistics import Interval, paired_difference

HERE = Path(__file__).resolve().parent
SYNCHRONOUS, WARM_UP = "synchronous", "warm_up"
STALENESS: Mapping[str, int] = {"staleness_1": 1, "staleness_4": 4}
ARMS: Mapping[str, Mapping[str, Any]] = {
    SYNCHRONOUS: {"training": "synchronous", "beta": 0.0},
    **{
        arm: {
            "training": "asynchronous",
            "max_staleness": staleness,
            "concurrent_collections": 1 if staleness == 1 else 3,
            "max_concurrent_episodes": 32,
            "token_budget": 8192,
            "gradient_accumulation_steps": 1,
            "weight_transfer": "folder",
        }
        for arm, staleness in STALENESS.items()
    },
}
EQUAL = 0.05
SEEDS = range(5)
COLUMNS = {
    "updates": "updates",
    "sampled_tokens": "tokens sampled",
    "staleness": "updates that replies are older",
    "dropped": "collections dropped",
    "waited": "part of the time waited",
}
EXPERIMENT: Mapping[str, Any] = {
    "arms": ARMS,
    "budget": 30_000,  # tokens sampled in training; the update that passes it is the last
    "held_out": 512,
    "training": {
        "method": "verifiable_process",
        "task": "sudoku",
        "task_options": {"size": 4, "blanks": 8, "notation": "candidates"},
        "history": "current",
        "instructions": False,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_completion_length": 6,
        "instances_per_update": 16,
        "per_device_train_batch_size": 16,
        "max_steps": 200,
        "learning_rate": 2e-3,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 8,
        "log_episodes": 0,
    },
}


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, "runs/asynchronous", seeds=len(SEEDS))
    cells = [(WARM_UP, 0), *((arm, seed) for seed in SEEDS for arm in ARMS)]
    phases = [[cell for cell in cells if cell[1] < options.seeds]]
    if options.cell is not None:
        phases = one_cell([cells], options.cell)
    run_cells(options.work, EXPERIMENT, phases, cell_file, run_cell, EXPERIMENT, options.workers)
    if options.cell is None:
        folder = results_folder(options, HERE / "results", [cells], cell_file)
        write_tables((options.work / "cells").glob("*.json"), folder)


def cell_file(work: Path, arm: str, seed: int) -> Path:
    """Where a finished cell is kept."""
    return work / "cells" / f"{arm}-{seed}.json"


def run_cell(experiment: Mapping[str, Any], arm: str, seed: int, work: Path) -> None:
    """Trains from the start until the budget is spent, measures, and writes the cell."""
    prepare_process()
    import yaml
    from transformers import PrinterCallback, ProgressCallback, TrainerCallback

    from hf_credit.evaluation.play import evaluate_model
    from hf_credit.tasks import TaskSpec
    from hf_credit.trainers.recipes import read_job
    from hf_credit.trainers.training import build_trainer

    start, output = work / "start", work / f"trained_{os.getpid()}"
    if not (start / "README.md").is_file():
        warm_up(start)
    cell: dict[str, Any] = {"arm": arm, "seed": seed}
    if arm != WARM_UP:
        recipe = {
            **ON_A_PROCESSOR,
            **experiment["training"],
            **experiment["arms"][arm],
            "model_name_or_path": str(start),
            "output_dir": str(output),
            "seed": seed,
        }
        if arm != SYNCHRONOUS:
            recipe["vllm_server_base_url"] = served(start)
        path = work / f"{arm}-{seed}.yaml"
        path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
        trainer = build_trainer(read_job(["--config", str(path)]))
        times: list[float] = []

        class Stop(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                times.append(time.monotonic())
                control.should_training_stop = trainer.ledger.completion_tokens >= experiment["budget"]

        for shown in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(shown)
        trainer.add_callback(Stop())
        trainer.train()
        logs = [entry for entry in trainer.state.log_history if "reward" in entry]
        stale = [entry["collections/staleness_mean"] for entry in logs if "collections/staleness_mean" in entry]
        waited = "time/rollouts" if arm == SYNCHRONOUS else "perf/rollout_wait_s"
        cell |= {
            "updates": trainer.state.global_step,
            "sampled_tokens": trainer.ledger.completion_tokens,
            "staleness": 0.0 if arm == SYNCHRONOUS else fmean(stale),
            "dropped": sum(entry.get("collections/dropped_total", 0) for entry in logs),
            "waited": sum(entry[waited] for entry in logs[1:]) / (times[-1] - times[0]),
            "rewards": [round(entry["reward"], 4) for entry in logs],
        }
        trainer.save_model(str(output))
    spec = TaskSpec.load(start if arm == WARM_UP else output)
    assert spec is not None  # written with the policy
    model = str(start if arm == WARM_UP else output)
    results = evaluate_model(model, spec, experiment["held_out"], seed=seed, device="cpu")
    cell["success"] = fmean(results.values("success").values())
    cell["made_with"] = {"device": "processor", **versions()}
    write_whole(cell_file(work, arm, seed), cell)


def warm_up(folder: Path) -> None:
    """The base policy of `sudoku_micro`, with its own output layer: vLLM on a processor packs a tied one once."""
    import torch
    from transformers import AutoModelForCausalLM

    from hf_credit.cli.demo import DemoRecipe, make_base
    from hf_credit.cli.progress import Progress

    recipe = DemoRecipe()
    with Progress() as progress:
        make_base(recipe, folder.parent / "warm_up", progress)
    base = folder.parent / "warm_up" / "base"
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    output = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.config.tie_word_embeddings = False
    model.lm_head.weight = output
    model.save_pretrained(base)
    base.rename(folder)


@cache
def served(start: Path) -> str:
    """The address of a vLLM server, which lives as long as this process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(start), "--dtype=float32", f"--port={port}"]
    command += ["--host=127.0.0.1", "--max-model-len=512", "--enforce-eager"]
    environment = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with Path(start.parent, "server.log").open("ab") as log:
        server = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=log, stderr=log, start_new_session=True
        )
    atexit.register(os.killpg, server.pid, signal.SIGTERM)
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return f"http://127.0.0.1:{port}"
        except OSError:
            if server.poll() is not None:
                raise RuntimeError(f"the server did not start; see {start.parent / 'server.log'}.") from None
            time.sleep(1)


def write_tables(paths: Iterable[Path], folder: Path) -> None:
    """Writes the cells and what follows from them."""
    cells = read(paths, lambda cell: str(cell["arm"]))
    write(cells, folder, markdown(cells))


def verdict(difference: Interval) -> str:
    """By the rule that was registered."""
    if difference.low > -EQUAL and difference.high < EQUAL:
        return "equal"
    if difference.low <= 0 <= difference.high:
        return "undecided"
    return "ahead" if difference.mean > 0 else "behind"


def markdown(cells: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> str:
    """The tables."""
    rows = []
    for arm in (WARM_UP, *ARMS):
        own = [cells.get(arm, {})[seed] for seed in sorted(cells.get(arm, {}))]
        columns = [mean([cell[name] for cell in own]) if own and name in own[0] else "" for name in COLUMNS]
        rows.append([arm, str(len(own)), mean([cell["success"] for cell in own]), *columns])
    compared = []
    for arm in STALENESS:
        seeds = common_seeds(cells, arm, SYNCHRONOUS)
        if len(seeds) > 1:
            pair = [[cells[one][seed]["success"] for seed in seeds] for one in (arm, SYNCHRONOUS)]
            found = paired_difference(*pair)
            compared.append([arm, str(len(seeds)), interval(found, signed=True), verdict(found)])
    return f"""# Learning through a server, and without

Written by `evaluation/asynchronous/run.py`; do not edit. How to read it: `../README.md`.

Success on held-out tasks, and the training (means over seeds, with 95% intervals):

{table(["arm", "seeds", "success", *COLUMNS.values()], rows)}

Success minus that of `{SYNCHRONOUS}`, seed by seed:

{table(["arm", "seeds", "difference", "verdict"], compared)}
"""


if __name__ == "__main__":
    main()
