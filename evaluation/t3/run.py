"""Trains and measures every policy of the evidence, then writes the tables. Finished cells are skipped.

python evaluation/t3/run.py --work runs/t3
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import table
from experiment import ALGORITHMS, EXPERIMENT, GAMES, START, Experiment, Game
from running import ON_A_PROCESSOR, one_cell, parse_options, prepare_process, results_folder, run_cells, write_whole

from hf_credit.evaluation.runs import versions

# What is kept of the training log, one value for each time that episodes are played.
CURVES = ("reward", "cut/ratio", "turns/mean", "answered", "beliefs/hypotheses", "budget/completion_tokens")

RESULTS = Path(__file__).resolve().parent / "results"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, "runs/t3")
    run(EXPERIMENT, options.work, options.workers, options.cell)
    if options.cell is None:
        folder = results_folder(options, RESULTS, EXPERIMENT.stages(), cell_file)
        table.write_tables((options.work / "cells").glob("*.json"), folder)


def run(experiment: Experiment, work: Path, workers: int, cell: Sequence[str] | None = None) -> None:
    """Runs every cell that is not finished, stage by stage.

    Args:
        experiment, work, workers: as of `running.run_cells`, with its errors.
        cell: what names the one cell to run, with its start; all of them if `None`.
    """
    cells = experiment.stages() if cell is None else one_cell(experiment.stages(), cell, START)
    run_cells(work, experiment.settings(), cells, cell_file, run_cell, experiment, workers)


def cell_file(work: Path, game: str, algorithm: str, arm: str, seed: int) -> Path:
    """Where a finished cell is kept."""
    return work / "cells" / f"{'-'.join(filter(None, (game, algorithm, arm)))}-{seed}.json"


def start_folder(work: Path, game: str, seed: int) -> Path:
    """Where the start of a game and seed is kept."""
    return work / "starts" / f"{game}-{seed}"


def run_cell(experiment: Experiment, game: str, algorithm: str, arm: str, seed: int, work: Path) -> None:
    """Builds a start or trains from it, measures, and writes the cell."""
    prepare_process()
    begun = time.process_time()
    folder = start_folder(work, game, seed)
    if arm == START:
        told = build(experiment, GAMES[game], seed, folder)
    else:
        told = train(experiment, GAMES[game], algorithm, arm, seed, folder, work)
    cell = {
        "game": game,
        "algorithm": algorithm,
        "arm": arm,
        "seed": seed,
        **told,
        "made_with": {"device": "processor, one thread", **versions()},
        "cpu_seconds": time.process_time() - begun,
    }
    write_whole(cell_file(work, game, algorithm, arm, seed), cell)


def interaction_of(game: Game, turns: int) -> Any:
    """The game with a limit of replies, all of its turns in view."""
    from hf_credit import make
    from hf_credit.rollouts import EnvironmentInteraction

    return EnvironmentInteraction(
        make(game.environment, **game.options, turns=turns), history="append", instructions=False
    )


def build(experiment: Experiment, game: Game, seed: int, folder: Path) -> dict[str, Any]:
    """The start of a seed, shared by all arms: a policy that imitates the scripted player.

    Beside it stand that player and one who makes no mistakes.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from hf_credit.environments.tasks import task_seed
    from hf_credit.policies.scripted import walk
    from hf_credit.rollouts import RolloutRequest
    from hf_credit.trainers.micro import init_scripted_policy

    interaction = interaction_of(game, game.turns[0])
    config = dataclasses.replace(game.policy, seed=seed)
    rows = interaction.tasks("train", config.episodes)
    starts = [RolloutRequest[Any](task=row, seed=task_seed("train", index)) for index, row in enumerate(rows)]
    init_scripted_policy(interaction, interaction.scripted_player(config.quality), starts, folder, config)
    players = {}
    for name, quality in (("imitated", config.quality), ("oracle", 1.0)):
        walks = [walk(interaction, interaction.scripted_player(quality), start) for start in starts[:500]]
        players[name] = _by_replies([(len(steps), interaction.outcome(end)) for steps, end in walks], game.turns[0])
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    return {"players": players, "solved": solved(experiment, game, model, tokenizer, experiment.episodes)}


def train(
    experiment: Experiment, game: Game, algorithm: str, arm: str, seed: int, start: Path, work: Path
) -> dict[str, Any]:
    """Trains from the start; success on the way and at the end, what was logged, and what it cost."""
    from transformers import AutoTokenizer, PrinterCallback

    from hf_credit import TruncatedPPOConfig, TruncatedPPOTrainer

    interaction = interaction_of(game, game.turns_of(arm))
    args = TruncatedPPOConfig(
        **{
            "output_dir": str(work / f"trained_{os.getpid()}"),  # each of those side by side has its own
            "seed": seed,
            "algorithm": algorithm,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            **ON_A_PROCESSOR,
            "shuffle_dataset": False,
            **experiment.training,
            **ALGORITHMS[algorithm],
            **game.settings_of(arm),
        }
    )
    first = 10**6 * (seed + 1)  # behind the tasks of the scripted play, and others for every seed
    rows = interaction.tasks("train", args.max_steps * args.instances_per_update, start=first)
    tokenizer = AutoTokenizer.from_pretrained(start, padding_side="left")
    looking = _looking(experiment, game)
    trainer = TruncatedPPOTrainer(str(start), interaction, args, rows, processing_class=tokenizer, callbacks=[looking])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    model = trainer.accelerator.unwrap_model(trainer.model)
    entries = [entry for entry in trainer.state.log_history if "reward" in entry]
    curves: Mapping[str, list[float]] = {
        name: [round(entry[name], 6) for entry in entries if name in entry] for name in CURVES
    }
    return {
        "on_the_way": looking.found,
        "solved": solved(experiment, game, model, tokenizer, experiment.episodes),
        "curves": curves,
        "tokens": trainer.ledger.completion_tokens,
    }


def _looking(experiment: Experiment, game: Game) -> Any:
    """Notes how often a policy solves held-out tasks before it learns from some of what it played."""
    from hf_credit.trainers.credit import CreditCallback

    class Looking(CreditCallback):
        def __init__(self) -> None:
            self.found: list[dict[str, Any]] = []

        def on_credit(self, trainer: Any, collected: Any, credit: Any) -> None:
            update = trainer.updates_collected - 1
            if update % experiment.look_every == 0:
                model = trainer.accelerator.unwrap_model(trainer.model)
                own = solved(experiment, game, model, trainer.chat.tokenizer, experiment.looks)
                model.train()
                self.found.append({"update": update, "solved": own})

    return Looking()


def solved(experiment: Experiment, game: Game, model: Any, tokenizer: Any, episodes: int) -> list[float]:
    """The share of held-out tasks, played uncut, that a policy solves in at most 1, 2, ... replies."""
    from hf_credit.environments.tasks import task_seed
    from hf_credit.policies.generation import sampler
    from hf_credit.rollouts import Chat, Engine, RolloutRequest

    interaction = interaction_of(game, experiment.most_turns)
    length = experiment.training["max_completion_length"]
    engine = Engine(interaction, Chat(tokenizer), sampler(model, tokenizer, max_new_tokens=length))
    rows = interaction.tasks("held_out", episodes)
    starts = [
        RolloutRequest[Any](task=row, seed=task_seed("held_out", index), stream=f"held out {index}")
        for index, row in enumerate(rows)
    ]
    played = [(len(episode.decisions), episode.outcome) for episode in engine.run(starts)]
    return _by_replies(played, experiment.most_turns)


def _by_replies(played: Sequence[tuple[int, float]], most: int) -> list[float]:
    """The share of episodes, given with their replies and their outcome, that were solved in at most 1 .. `most`."""
    return [
        round(sum(outcome == 1 and replies <= limit for replies, outcome in played) / len(played), 6)
        for limit in range(1, most + 1)
    ]


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # threads beyond the cores spin against each other
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    main()
