"""Trains and measures every policy of the comparison, then writes the tables. Finished cells are skipped.

python evaluation/cvt/run.py --work runs/cvt
python evaluation/cvt/run.py --schedule long --work runs/cvt_long
python evaluation/cvt/run.py --schedule half_rate --work runs/cvt_half_rate
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import table
from experiment import ARMS, BASE, SCHEDULES, Experiment
from running import ON_A_PROCESSOR, one_cell, parse_options, prepare_process, results_folder, run_cells, write_whole

from hf_credit.evaluation.runs import versions

# F1 is missing, as 0, of an update in which no episode gave an answer.
CURVES = ("verified", "evidence/f1", "hacks/true", "budget/tokens")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--schedule",
        choices=SCHEDULES,
        default="short",
        help="200,000 tokens each, ten times that, or that at half the rate",
    )
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="of the schedule's; all of them if left out")
    options = parse_options(parser, arguments, "runs/cvt")
    experiment = SCHEDULES[options.schedule]
    if unknown := [arm for arm in options.arms or () if arm not in experiment.arms]:
        parser.error(f"arms must be of {', '.join(experiment.arms)}, got {unknown[0]!r}; name these.")
    run(experiment, options.work, options.workers, options.arms, options.cell)
    if options.cell is None:
        folder = results_folder(options, table.RESULTS[options.schedule], [experiment.cells()], cell_file)
        table.write_tables((options.work / "cells").glob("*.json"), folder)


def run(
    experiment: Experiment,
    work: Path,
    workers: int,
    arms: Collection[str] | None = None,
    cell: Sequence[str] | None = None,
) -> None:
    """Runs every cell that is not finished: first the starts, then what is trained from them.

    Args:
        experiment, work, workers: as of `running.run_cells`, with its errors.
        arms: of the experiment's; all of them if `None`.
        cell: what names the one cell to run, with its start; all of them if `None`.
    """
    cells = experiment.cells()
    phases = [
        [one for one in cells if one[0] == BASE],
        [one for one in cells if one[0] != BASE and (arms is None or one[0] in arms)],
    ]
    phases = phases if cell is None else one_cell(phases, cell, BASE)
    run_cells(work, experiment.settings(), phases, cell_file, run_cell, experiment, workers, arms="arms")


def cell_file(work: Path, arm: str, seed: int) -> Path:
    """Where a finished cell is kept."""
    return work / "cells" / f"{''.join(one if one.isalnum() else '_' for one in arm.lower())}-{seed}.json"


def start_folder(work: Path, seed: int) -> Path:
    """Where the start of a seed is kept."""
    return work / "starts" / str(seed)


def run_cell(experiment: Experiment, arm: str, seed: int, work: Path) -> None:
    """Builds a start or trains from it, measures, and writes the cell."""
    prepare_process()
    begun = time.process_time()
    if arm == BASE:
        build(experiment, seed, start_folder(work, seed))
    trainer = trainer_of(experiment, arm, seed, work)
    told: dict[str, Any] = {}
    if arm != BASE:
        trainer.train()
        told = _of_training(trainer)
    trained = time.process_time()
    cell = {
        "arm": arm,
        "seed": seed,
        **told,
        "held_out": measure(experiment, trainer),
        "made_with": {"device": "processor, one thread", **versions()},
        "cpu_seconds": {"training": trained - begun, "measuring": time.process_time() - trained},
    }
    write_whole(cell_file(work, arm, seed), cell)


def build(experiment: Experiment, seed: int, folder: Path) -> None:
    """The start of a seed, shared by all arms: a policy that imitates play that is right half of the time."""
    from hf_credit.environments.tasks import task_seed
    from hf_credit.rollouts import RolloutRequest
    from hf_credit.trainers.micro import init_scripted_policy

    if (folder / "config.json").is_file():
        return
    config = dataclasses.replace(experiment.policy, seed=seed)
    interaction = played(experiment)
    player = interaction.scripted_player(config.quality)
    rows = interaction.tasks("train", config.episodes)
    starts = [RolloutRequest[Any](task=row, seed=task_seed("train", index)) for index, row in enumerate(rows)]
    init_scripted_policy(interaction, player, starts, folder, config)


def played(experiment: Experiment) -> Any:
    """The world, as every arm meets it."""
    from hf_credit.environments import make
    from hf_credit.rollouts import EnvironmentInteraction

    return EnvironmentInteraction(make("evidence", **experiment.world), history="current", instructions=False)


def trainer_of(experiment: Experiment, arm: str, seed: int, work: Path) -> Any:
    """The trainer of an arm at its start; the start itself is measured by the first arm's."""
    from transformers import PrinterCallback

    from hf_credit import ConstrainedCounterfactualConfig, ConstrainedCounterfactualTrainer

    args = ConstrainedCounterfactualConfig(
        **{
            "output_dir": str(work / f"trained_{os.getpid()}"),  # each of those side by side has its own
            "seed": seed,
            "max_steps": 100_000,  # the tokens end it
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            **ON_A_PROCESSOR,
            "shuffle_dataset": False,
            **experiment.training,
            **(ARMS[arm] if arm != BASE else next(iter(ARMS.values()))),
        }
    )
    interaction = played(experiment)
    first = 10**6 * (seed + 1)  # behind the tasks of the scripted play, and others for every seed
    rows = interaction.tasks("train", 4096, first)
    trainer = ConstrainedCounterfactualTrainer(str(start_folder(work, seed)), interaction, args, rows)
    trainer.add_callback(_ending(trainer, experiment.tokens))
    trainer.remove_callback(PrinterCallback)
    return trainer


def _ending(trainer: Any, tokens: int) -> Any:
    """Ends a training with the update in which its tokens came to so many."""
    from transformers import TrainerCallback

    class Ending(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            whole = state.global_step % args.num_iterations == 0
            control.should_training_stop = control.should_training_stop or (whole and trainer.ledger.tokens >= tokens)

    return Ending()


def _of_training(trainer: Any) -> dict[str, Any]:
    entries = [entry for entry in trainer.state.log_history if "budget/tokens" in entry]
    ledger = trainer.ledger
    return {
        "updates": trainer.state.global_step // trainer.args.num_iterations,
        "curves": {name: [round(entry.get(name, 0.0), 4) for entry in entries] for name in CURVES},
        "ledger": {
            "scoring_events": ledger.scoring_events,
            "tokens": ledger.tokens,
            "completion_tokens": ledger.completion_tokens,
            "counterfactual_tokens": ledger.counterfactual_tokens,
        },
    }


def measure(experiment: Experiment, trainer: Any) -> dict[str, Any]:
    """Plays the held-out tasks, the same for every policy, and has the steps audited: a list of each number, by task.

    An episode that gives no answer has an evidence F1 of 0.
    """
    import torch

    from hf_credit.evaluation.play import evaluate_policy
    from hf_credit.methods.cvt import audit_of, audited, verified_success
    from hf_credit.policies.generation import sampler
    from hf_credit.tasks.rows import evaluation_starts

    found: dict[str, Any] = {}
    interaction, limit = trainer.interaction, trainer.args.max_completion_length
    auditor = interaction.default_auditor()

    def look(starts: Any, episodes: Any) -> None:
        judged = audited(episodes, auditor, interaction)
        steps = [[audit_of(decision) for decision in one.decisions] for one in judged]
        found["verified"] = [int(verified_success(one) or 0) for one in judged]
        found["check"] = [int(one.outcome) for one in judged]
        found["f1"] = [round(max((step.evidence or 0.0 for step in own), default=0.0), 3) for own in steps]
        found["hacked"] = [int(any(step.true_hacks for step in own)) for own in steps]
        held = [one.metrics.get("held_out_hacked", 0.0) for one in judged]
        found["held_out_hacked"] = [int(value) for value in held]
        found["costs"] = {
            name: round(sum(step.costs.get(name, 0.0) for own in steps for step in own) / len(steps), 4)
            for name in auditor.costs
        }

    torch.manual_seed(0)
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    generate = sampler(model, trainer.processing_class, max_new_tokens=limit, temperature=1.0, top_p=1.0, top_k=0)
    evaluate_policy(
        generate, trainer.chat, interaction, evaluation_starts(interaction, experiment.held_out), on_episodes=look
    )
    return found


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # threads beyond the cores spin against each other
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    main()
