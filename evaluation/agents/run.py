"""Trains the program of `examples/sql_agent` by four methods at equal tokens. Finished cells are skipped.

python evaluation/agents/run.py --work runs/agents --workers 1
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "sql_agent"))

from finished_cells import common_seeds, interval, mean, read, verdict, write
from running import ON_A_PROCESSOR, one_cell, parse_options, prepare_process, results_folder, run_cells, write_whole

from hf_credit.evaluation.markdown import table
from hf_credit.evaluation.runs import versions
from hf_credit.evaluation.statistics import holm, paired_difference, permutation_test

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "sql_agent"
METHODS: Mapping[str, Mapping[str, Any]] = {
    "grpo": {"group_size": 8},
    "turn_credit": {"group_size": 8},
    "vineppo": {"group_size": 2, "rollouts": 2},
    "replay_loo": {"budget": 8, "alternatives": [2, 2, 2]},
}
"""Of each the options with which an update takes about as many tokens as of the others."""
BEHIND = "grpo"
"""With which the others are compared."""
START = "start"
COSTS = {
    "updates": "updates",
    "sampled_tokens": "tokens sampled",
    "tokens": "sampled and shown",
    "scores": "scores",
    "runs": "runs",
}
SEEDS, TUNING = range(10), 100
RATES = (5e-4, 1e-3)
"""Learning rates; each method has the one with which it does best on a seed of its own."""
EXPERIMENT: Mapping[str, Any] = {
    "methods": METHODS,
    "quality": 0.42,  # of the scripted play that the start imitates
    "budget": 12_000,  # tokens sampled in training; the update that passes it is the last
    "episodes": 1,  # of each held-out row that measure a policy
    "training": {
        "instances_per_update": 4,
        "per_device_train_batch_size": 4,
        "max_steps": 100,
        "lr_scheduler_type": "constant",
        "beta": 0.0,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_completion_length": 96,
        "log_episodes": 0,
    },
}


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, "runs/agents", seeds=len(SEEDS))
    tuning = [(method, rate, TUNING) for method in METHODS for rate in RATES]
    start = (START, 0.0, 0)

    def go_on(cells: Sequence[tuple[str, float, int]]) -> None:
        phases = [cells] if options.cell is None else one_cell([cells], options.cell)
        run_cells(options.work, EXPERIMENT, phases, cell_file, run_cell, EXPERIMENT, options.workers)

    if options.cell is not None:
        go_on([start, *tuning, *((method, rate, seed) for method in METHODS for rate in RATES for seed in SEEDS)])
        return
    go_on([start, *tuning])
    tuned = rates(read((options.work / "cells").glob("*.json"), key))
    cells = [(method, rate, seed) for seed in SEEDS for method, rate in tuned.items()]
    go_on([cell for cell in cells if cell[-1] < options.seeds])
    folder = results_folder(options, HERE / "results", [[start, *tuning, *cells]], cell_file)
    write_tables((options.work / "cells").glob("*.json"), folder)


def key(cell: Mapping[str, Any]) -> tuple[str, float]:
    """What a cell is a seed of."""
    return cell["method"], cell["rate"]


def rates(cells: Mapping[tuple[str, float], Mapping[int, Mapping[str, Any]]]) -> dict[str, float]:
    """The learning rate of each method: that of the most success with the tuning seed, the smaller of equal ones."""
    return {method: max(RATES, key=lambda rate: cells[method, rate][TUNING]["success"]) for method in METHODS}


def cell_file(work: Path, method: str, rate: float, seed: int) -> Path:
    """Where a finished cell is kept."""
    return work / "cells" / f"{method}-{rate:g}-{seed}.json"


def run_cell(experiment: Mapping[str, Any], method: str, rate: float, seed: int, work: Path) -> None:
    """Trains from the start until the budget is spent, measures, and writes the cell."""
    prepare_process()
    from datasets import Dataset
    from transformers import AutoTokenizer, PrinterCallback, TrainerCallback, set_seed
    from warm_up import build

    from hf_credit import CreditConfig, CreditTrainer, methods
    from hf_credit.agents import AgentInteraction
    from hf_credit.policies.generation import sampler
    from hf_credit.rollouts import Chat, Engine, RolloutRequest

    start = work / "start"
    if not (start / "README.md").is_file():
        build(start, quality=experiment["quality"])
    train, held_out = (
        [json.loads(line) for line in (EXAMPLE / f"{split}.jsonl").read_text().splitlines()]
        for split in ("train", "held_out")
    )
    interaction = AgentInteraction("sql_agent:sql_agent")
    tokenizer = AutoTokenizer.from_pretrained(start, padding_side="left")
    settings = {**ON_A_PROCESSOR, **experiment["training"], "learning_rate": rate, "seed": seed}
    trainer = CreditTrainer(
        str(start),
        interaction,
        CreditConfig(output_dir=str(work / f"trained_{os.getpid()}"), **settings),
        Dataset.from_list(train),
        method=methods.make(BEHIND if method == START else method, **experiment["methods"].get(method, {})),
        processing_class=tokenizer,
    )

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = trainer.ledger.completion_tokens >= experiment["budget"]

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Stop())
    if method != START:
        trainer.train()
    costs = interaction.costs()
    set_seed(seed)
    model: Any = trainer.model
    generate = sampler(model.eval(), tokenizer, max_new_tokens=settings["max_completion_length"])
    rows = held_out * experiment["episodes"]
    starts = [RolloutRequest[Any](task=row, seed=number) for number, row in enumerate(rows)]
    episodes = Engine(interaction, Chat(tokenizer), generate).run(starts)
    cell = {
        "method": method,
        "rate": rate,
        "seed": seed,
        "success": fmean(episode.outcome for episode in episodes if episode.ending != "error"),
        "updates": trainer.state.global_step,
        "sampled_tokens": trainer.ledger.completion_tokens,
        "tokens": trainer.ledger.tokens,
        "scores": trainer.ledger.scoring_events,
        "runs": costs["runs"],
        "made_with": {"device": "processor, one thread", **versions()},
    }
    interaction.close()
    write_whole(cell_file(work, method, rate, seed), cell)


def write_tables(paths: Iterable[Path], folder: Path) -> None:
    """Writes the cells and what follows from them."""
    cells = read(paths, key)
    write(cells, folder, markdown(cells))


def markdown(cells: Mapping[tuple[str, float], Mapping[int, Mapping[str, Any]]]) -> str:
    """The tables."""
    tuned = rates(cells)
    tried = [[method, *(f"{cells[method, rate][TUNING]['success']:.3f}" for rate in RATES)] for method in METHODS]
    rows = []
    for method, rate in {START: 0.0, **tuned}.items():
        own = [cell for seed, cell in cells.get((method, rate), {}).items() if seed in SEEDS]
        costs = [f"{fmean(cell[name] for cell in own):.0f}" if own else "" for name in COSTS]
        rows.append([method, f"{rate:g}", str(len(own)), mean([cell["success"] for cell in own]), *costs])
    tests = []
    for method, rate in tuned.items():
        both = (method, rate), (BEHIND, tuned[BEHIND])
        seeds = [seed for seed in common_seeds(cells, *both) if seed in SEEDS]
        if method != BEHIND and len(seeds) > 1:
            pair = [[cells[one][seed]["success"] for seed in seeds] for one in both]
            tests.append((method, len(seeds), paired_difference(*pair), permutation_test(*pair).p_value))
    adjusted = holm([p for *_, p in tests]) if tests else ()
    compared = [
        [method, str(count), interval(found, signed=True), f"{p:.3f}", verdict(found, p, behind="behind")]
        for (method, count, found, _), p in zip(tests, adjusted, strict=True)
    ]
    head = ["method", "rate", "seeds", "success", *COSTS.values()]
    return f"""# Four methods on one program

Written by `evaluation/agents/run.py`; do not edit. How to read it: `../README.md`.

Success with seed {TUNING}, by which learning rates were chosen:

{table(["method", *(f"{rate:g}" for rate in RATES)], tried)}

Success on held-out questions, and what training took:

{table(head, rows)}

Success after training, less that of `{BEHIND}`:

{table(["method", "seeds", "difference", "p after Holm", "verdict"], compared)}
"""


if __name__ == "__main__":
    main()
