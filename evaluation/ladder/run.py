"""Makes the starts of the ladder, and trains every arm on every rung at equal tokens. Finished cells are skipped.

python evaluation/ladder/run.py --work runs/ladder --workers 2 --stages 1    # goes on where it was stopped
python evaluation/ladder/run.py --work runs/ladder --before                  # what is predicted, before any training
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from experiment import ARMS, BEFOREHAND, LEARNABLE, LOOKS, SEEDS, STAGES, START, TAUGHT, WORLDS, Rung, World
from finished_cells import Cell
from running import (
    ON_A_PROCESSOR,
    SETTINGS_FILE,
    UNTIL_SPENT,
    one_cell,
    parse_options,
    prepare_process,
    require_same_starts,
    run_cells,
    signals,
    take_finished,
    write_whole,
)

from hf_credit.evaluation.runs import versions

HERE = Path(__file__).resolve().parent
KEPT = HERE / "starts"
"""Starts of rungs that are not finished: their weights are the same on every machine, while those of a warm-up and
sampled episodes differ in rounding."""
HELD_OUT = 512
DIAGNOSED = ("verifiable_process", "rloo", "replay_loo")
"""Methods that are looked at beforehand, beside `outcome_reward`."""
EXPERIMENT: Mapping[str, Any] = {
    "worlds": WORLDS,
    "arms": ARMS,
    "held_out": HELD_OUT,
    "collections": 24,
    "judged": 1024,
}
Name = tuple[str, str, str, int]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stages", type=int, default=len(STAGES), help="how many of the stages to run")
    parser.add_argument("--before", action="store_true", help="make only what comes before the trainings")
    options = parse_options(parser, arguments, "runs/ladder", seeds=len(SEEDS))
    phases = before(options.stages)
    if not options.before:
        of_stages = [[cell for cell in one if cell[-1] < options.seeds] for one in stages()[: options.stages]]
        phases = [phase for last, one in enumerate(of_stages, 1) for phase in (*before(last), one)]
    if options.cell is not None:
        phases = one_cell([*before(), *stages()], options.cell)
    from table import write_tables  # which takes the names of cells from here

    results = options.results or HERE / "results"
    resumed = options.cell is None
    starts = take_finished(results, options.work, settings(), cell_file, key, START, arms="arms") if resumed else {}
    made_again = {made: committed for made, committed in starts.items() if not (KEPT / made.stem).is_dir()}
    for phase in phases:
        cells = [cell for cell in phase if cell[2] not in ARMS or learnable(options.work, *cell[:2])]
        run_cells(options.work, settings(), [cells], cell_file, run_cell, EXPERIMENT, options.workers, arms="arms")
        require_same_starts(made_again)
        if resumed:
            to_make = [committed for made, committed in starts.items() if not made.is_file()]
            write_tables([*(options.work / "cells").glob("*.json"), *to_make], results)
            shutil.copy(options.work / SETTINGS_FILE, results)


def settings() -> dict[str, Any]:
    """What finished cells depend on; there may be more arms and rungs than when they were run."""
    worlds = {name: {**asdict(one), "rungs": {"arms": asdict(one)["rungs"]}} for name, one in WORLDS.items()}
    return {**EXPERIMENT, "worlds": {"arms": worlds}, "arms": {name: asdict(one) for name, one in ARMS.items()}}


def before(last: int = len(STAGES)) -> list[list[Name]]:
    """The cells before the trainings of the first stages: starts, then taught policies and what starts promise."""
    rungs = list(dict.fromkeys((world, rung) for world, some, _ in STAGES[:last] for rung in some))
    return [
        [(*rung, START, 0) for rung in rungs],
        [(*rung, kind, 0) for rung in rungs for kind in (TAUGHT, BEFOREHAND)],
    ]


def stages() -> list[list[Name]]:
    """The trainings of each stage, seed by seed."""
    return [
        [(world, rung, arm, seed) for seed in SEEDS for rung in rungs for arm in arms] for world, rungs, arms in STAGES
    ]


def key(cell: Cell) -> tuple[str, str, str]:
    """What a cell is a seed of."""
    return cell["world"], cell["rung"], cell["arm"]


def cell_file(work: Path, world: str, rung: str, arm: str, seed: int) -> Path:
    """Where a finished cell is kept."""
    return work / "cells" / f"{world}-{rung.replace(' ', '').replace(',', '_')}-{arm}-{seed}.json"


def learnable(work: Path, world: str, rung: str) -> bool:
    """Whether the taught policy of a rung succeeds that much more often than the start."""
    start, taught = (
        json.loads(cell_file(work, world, rung, arm, 0).read_text(encoding="utf-8"))["success"]
        for arm in (START, TAUGHT)
    )
    return bool(taught - start >= LEARNABLE)


def run_cell(experiment: Mapping[str, Any], world: str, rung: str, arm: str, seed: int, work: Path) -> None:
    """Makes, looks at or trains one policy, and writes its cell."""
    prepare_process()
    own: World = experiment["worlds"][world]
    folder, begun = work / "starts" / cell_file(work, world, rung, START, 0).stem, time.process_time()
    if arm == BEFOREHAND:
        found = signals(folder, DIAGNOSED, experiment["collections"])
        found["disagreement"] = disagreement(own, own.rungs[rung], folder, experiment["judged"])
    elif arm in (START, TAUGHT):
        found = warmed_up(own, own.rungs[rung], folder if arm == START else None, work, experiment["held_out"])
    else:
        found = trained(experiment, own, own.rungs[rung], arm, seed, folder, work)
    cell = {"world": world, "rung": rung, "arm": arm, "seed": seed, **found}
    cell |= {"cpu_seconds": round(time.process_time() - begun, 1), "made_with": versions()}
    write_whole(cell_file(work, world, rung, arm, seed), cell)


def interaction_of(world: World, rung: Rung) -> Any:
    """The task: the current observation alone, without instructions."""
    from hf_credit import make
    from hf_credit.rollouts import EnvironmentInteraction

    return EnvironmentInteraction(make(world.environment, **world.options, **rung.options), "current", False)


def warmed_up(world: World, rung: Rung, folder: Path | None, work: Path, held_out: int) -> dict[str, Any]:
    """Makes a start, unless it is kept, or without a folder the taught policy; measures its success."""
    import tempfile

    from transformers import AutoModelForCausalLM, AutoTokenizer

    from hf_credit.environments.tasks import task_seed
    from hf_credit.policies.scripted import walk
    from hf_credit.rollouts import RolloutRequest
    from hf_credit.trainers.micro import init_scripted_policy

    interaction, config = interaction_of(world, rung), rung.start
    if folder is None:
        config = replace(config, quality=1.0, episodes=4 * config.episodes)
    player = interaction.scripted_player(config.quality)
    starts = (RolloutRequest[Any](task={}, seed=task_seed("train", place)) for place in range(config.episodes))
    with tempfile.TemporaryDirectory(dir=work) as temporary:
        policy = folder or Path(temporary) / "taught"
        if folder is not None and (KEPT / folder.name).is_dir():
            shutil.copytree(KEPT / folder.name, folder, dirs_exist_ok=True)
        else:
            init_scripted_policy(interaction, player, starts, policy, config, callbacks=())
        model, tokenizer = AutoModelForCausalLM.from_pretrained(policy), AutoTokenizer.from_pretrained(policy)
        found = success(model, tokenizer, interaction, held_out, world.training["max_completion_length"])
    right = interaction.scripted_player(1.0)
    walks = [walk(interaction, right, RolloutRequest(task={}, seed=task_seed("train", place))) for place in range(64)]
    return {**found, "decisions": fmean(len(steps) for steps, _ in walks)}


def disagreement(world: World, rung: Rung, folder: Path, episodes: int) -> list[float]:
    """How often verdicts order two episodes of a start otherwise than their outcomes do: nd and n.

    Executed replays say it of single replies, but nothing where hardly one of them succeeds.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

    from hf_credit import methods
    from hf_credit.policies.generation import sampler
    from hf_credit.rollouts import Chat, Engine, LocalContext

    set_seed(0)
    interaction, tokenizer = interaction_of(world, rung), AutoTokenizer.from_pretrained(folder, padding_side="left")
    generate = sampler(
        AutoModelForCausalLM.from_pretrained(folder),
        tokenizer,
        max_new_tokens=world.training["max_completion_length"],
    )
    context = LocalContext(Engine(interaction, Chat(tokenizer), generate))
    method = methods.make("verifiable_process", outcome_weight="measured").bind(interaction)
    rows = [dict(row) for row in interaction.tasks("train", episodes)]
    collected = method.collector(rows, context, method.memory)
    return [*method.estimator(collected, context, method.memory).memory]


def trained(
    experiment: Mapping[str, Any], world: World, rung: Rung, name: str, seed: int, start: Path, work: Path
) -> dict[str, Any]:
    """Trains an arm from the start until its tokens are spent, and measures its success on the way."""
    from transformers import AutoTokenizer, PrinterCallback, TrainerCallback

    from hf_credit import CreditConfig, CreditTrainer, methods

    arm, interaction = experiment["arms"][name], interaction_of(world, rung)
    rows = max(int(world.episodes * arm.rows), 1)
    tokenizer = AutoTokenizer.from_pretrained(start, padding_side="left")
    args = CreditConfig(
        output_dir=str(work / f"trained_{os.getpid()}"),
        instances_per_update=rows,
        per_device_train_batch_size=rows,
        rows_per_forward=64,
        seed=seed,
        **ON_A_PROCESSOR,
        **UNTIL_SPENT,
        **world.training,
        **arm.training,
    )
    trainer = CreditTrainer(
        str(start),
        interaction,
        args,
        interaction.tasks("train", 50_000, 10**6 * (seed + 1)),  # others for every seed, and than those of the start
        method=methods.make(arm.method, **arm.options),
        processing_class=tokenizer,
    )
    looks: list[dict[str, float]] = []

    class Look(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            tokens = trainer.ledger.completion_tokens
            if state.global_step % args.steps_per_generation or tokens < LOOKS[len(looks)] * rung.budget:
                return
            most = world.training["max_completion_length"]
            found = success(trainer.model, tokenizer, interaction, experiment["held_out"], most)
            while len(looks) < len(LOOKS) and tokens >= LOOKS[len(looks)] * rung.budget:
                looks.append({"tokens": tokens, **found})
            control.should_training_stop |= len(looks) == len(LOOKS)

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Look())
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    weights = [round(entry["outcome/weight"], 4) for entry in log if "outcome/weight" in entry]
    return {
        "looks": looks,
        "updates": trainer.state.global_step,
        "tokens": trainer.ledger.completion_tokens,
        "scores": trainer.ledger.scoring_events,
        "weights": weights[:: max(len(weights) // 20, 1)],
    }


def success(model: Any, tokenizer: Any, interaction: Any, episodes: int, most: int) -> dict[str, float]:
    """The success and number of decisions of a policy on held-out tasks, one sampled episode each."""
    from transformers import set_seed

    from hf_credit.policies.generation import sampler
    from hf_credit.policies.scripted import success_of
    from hf_credit.rollouts import Chat, Engine, RolloutRequest
    from hf_credit.rollouts.dry_run import undisturbed

    rows = interaction.tasks("held_out", episodes)
    starts = [RolloutRequest[Any](task=dict(row), seed=row["seed"]) for row in rows]
    training = model.training
    with undisturbed():
        set_seed(0)
        played = Engine(interaction, Chat(tokenizer), sampler(model.eval(), tokenizer, max_new_tokens=most)).run(
            starts
        )
    model.train(training)
    return {
        "success": fmean(success_of(one) for one in played),
        "turns": round(fmean(one.turns for one in played), 3),
    }


if __name__ == "__main__":
    main()
