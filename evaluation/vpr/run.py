"""Trains and evaluates every policy of the evidence, then writes the tables and plots. Finished cells are skipped.

python evaluation/vpr/run.py --work runs/vpr
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import horizon
import oracle_error
import table
from cells import read_cells
from experiment import BASE, EXPERIMENT, METHODS, Experiment, Game, ablation_simulations
from running import ON_A_PROCESSOR, one_cell, parse_options, prepare_process, results_folder, run_cells, write_whole

from hf_credit.evaluation.runs import versions

# What is kept of the training log, one value an update.
CURVES = ("reward", "success", "return", "completion", "oracle/valid", "endings/invalid_action", "turns/mean")

RESULTS = Path(__file__).resolve().parent / "results"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, "runs/vpr", len(EXPERIMENT.seeds))
    experiment = dataclasses.replace(EXPERIMENT, seeds=EXPERIMENT.seeds[: options.seeds])
    run(experiment, options.work, options.workers, options.cell)
    if options.cell is None:
        folder = results_folder(options, RESULTS, phases(EXPERIMENT), cell_file)
        table.write(experiment, read_cells((options.work / "cells").glob("*.json")), folder)
        horizon.write(folder)
        oracle_error.write(folder, [number for game in experiment.games for number in game.simulations])


def phases(experiment: Experiment) -> list[list[tuple[str, str, int]]]:
    """Game, arm and seed of every cell, seed by seed: first the starting policies, then what is trained from them."""
    games = {game.name: game for game in experiment.games}
    bases = [(name, BASE, seed) for seed in experiment.seeds for name in games]
    arms = [(name, arm, seed) for seed in experiment.seeds for arm in _arms(experiment) for name in games]
    return [bases, [cell for cell in arms if cell[1] in games[cell[0]].arms]]


def run(experiment: Experiment, work: Path, workers: int, cell: Sequence[str] | None = None) -> None:
    """Runs every cell that is not finished: first the starting policies, then what is trained from them.

    Cells are taken seed by seed, so that a run that is stopped has all of the first seeds. A cell that fails stops
    no other.

    Args:
        experiment, work, workers: as of `running.run_cells`, with its errors.
        cell: what names the one cell to run, with its start; all of them if `None`.
    """
    cells = phases(experiment) if cell is None else one_cell(phases(experiment), cell, BASE)
    run_cells(work, experiment.settings(), cells, cell_file, run_cell, experiment, workers)


def cell_file(work: Path, game: str, arm: str, seed: int) -> Path:
    """Where a finished cell is kept."""
    return work / "cells" / f"{game}-{arm}-{seed}.json"


def run_cell(experiment: Experiment, name: str, arm: str, seed: int, work: Path) -> None:
    """Builds or trains one policy, evaluates it, and writes its cell, whole or not at all."""
    prepare_process()
    (game,) = (one for one in experiment.games if one.name == name)
    folder = work / "policies" / f"{name}-{arm}-{seed}"
    begun = time.process_time()
    log = build(game, seed, folder) if arm == BASE else train(game, arm, seed, work, folder)
    trained = time.process_time()
    cell = {
        "game": name,
        "arm": arm,
        "seed": seed,
        **log,
        "scores": evaluate(game, seed, folder, experiment.held_out_episodes),
        "made_with": {"device": "processor, one thread", **versions()},
        "cpu_seconds": {"training": trained - begun, "evaluation": time.process_time() - trained},
    }
    write_whole(cell_file(work, name, arm, seed), cell)


def build(game: Game, seed: int, folder: Path) -> dict[str, Any]:
    """The starting policy of a game and seed, shared by all arms."""
    from hf_credit.environments.tasks import task_seed
    from hf_credit.rollouts import RolloutRequest
    from hf_credit.trainers.micro import init_scripted_policy

    setup, config = game.setup(), dataclasses.replace(game.policy, seed=seed)
    interaction = setup.build()
    player = interaction.scripted_player(config.quality)
    assert player is not None
    starts = [RolloutRequest[Any](task={}, seed=task_seed("train", index)) for index in range(config.episodes)]
    init_scripted_policy(interaction, player, starts, folder, config)
    setup.save(folder)
    return {}


def train(game: Game, arm: str, seed: int, work: Path, folder: Path) -> dict[str, Any]:
    """Trains from the starting policy; the training log and what the arm cost."""
    from transformers import AutoTokenizer, PrinterCallback

    from hf_credit import CreditTrainer, VerifiableProcessConfig, methods

    setup, simulations = game.setup(), ablation_simulations(arm)
    name = METHODS["VPR" if simulations is not None else arm]
    options: dict[str, Any] = {"rollouts": game.value_rollouts} if name == "mc_process_reward" else {}
    if simulations is not None:
        options["oracle"] = {"name": "mcts", "options": {"simulations": simulations, "solve": False}}
    base = work / "policies" / f"{game.name}-{BASE}-{seed}"
    interaction = setup.build()
    args = VerifiableProcessConfig(
        **{
            "output_dir": str(folder),
            "seed": seed,
            "temperature": setup.sampling.temperature,
            "top_p": setup.sampling.top_p,
            "top_k": setup.sampling.top_k,
            "max_completion_length": setup.sampling.max_new_tokens,
            **ON_A_PROCESSOR,
            "max_concurrent_episodes": 1024,
            **game.training,
        }
    )
    episodes = args.max_steps * args.generation_batch_size
    first = 10**6 * (seed + 1)  # after the tasks of the scripted play, and others for every seed
    trainer = CreditTrainer(
        str(base),
        interaction,
        args,
        train_dataset=interaction.tasks("train", episodes, first),
        method=methods.make(name, **options),
        processing_class=AutoTokenizer.from_pretrained(base, padding_side="left"),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_model(str(folder))
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {
        "curves": {name: [round(entry[name], 6) for entry in log] for name in CURVES if name in log[0]},
        "updates": len(log),
        "episodes": episodes,
        "tokens": {
            "training": sum(entry["tokens/generated"] for entry in log),
            "value_rollouts": sum(entry.get("tokens/continuations", 0) for entry in log),
        },
    }


def evaluate(game: Game, seed: int, folder: Path, episodes: int) -> dict[str, list[float | None]]:
    """What Table 1 counts, for every held-out task in order; `None` where a number does not apply to a task."""
    from hf_credit.evaluation.play import evaluate_model

    results = evaluate_model(
        str(folder), game.setup(held_out=True), episodes, seed=seed, max_concurrent=512, device="cpu"
    )
    seeds = sorted(record.seed for record in results.records)
    values = {name: results.values(name) for name in (*game.columns, "oracle/valid", "endings/invalid_action")}
    return {name: [None if s not in v else round(v[s], 6) for s in seeds] for name, v in values.items()}


def _arms(experiment: Experiment) -> list[str]:
    return list(dict.fromkeys(arm for game in experiment.games for arm in game.arms))


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # threads beyond the cores spin against each other
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    main()
