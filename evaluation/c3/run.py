"""Trains and measures every policy of the evidence, then writes the tables and plots. Finished cells are skipped.

python evaluation/c3/run.py --work runs/c3
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import table
from experiment import BASE, ESTIMATORS, EVENTS, EXPERIMENT, METHODS, REPLY_TOKENS, Experiment
from running import ON_A_PROCESSOR, one_cell, parse_options, prepare_process, results_folder, run_cells, write_whole

from hf_credit.collaborations.relay import relay, relay_numbers, relay_task
from hf_credit.evaluation.runs import versions

SAMPLING = {"max_new_tokens": REPLY_TOKENS, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
LEDGER = ("budget/scoring_events", "budget/tokens", "budget/completion_tokens")

RESULTS = Path(__file__).resolve().parent / "results"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, "runs/c3", len(EXPERIMENT.seeds))
    experiment = dataclasses.replace(EXPERIMENT, seeds=EXPERIMENT.seeds[: options.seeds])
    run(experiment, options.work, options.workers, options.cell)
    if options.cell is None:
        folder = results_folder(options, RESULTS, phases(EXPERIMENT), cell_file)
        table.write(table.read_cells((options.work / "cells").glob("*.json")), folder)


def phases(experiment: Experiment) -> list[list[tuple[str, int]]]:
    """Arm and seed of every cell: first the starting policies, then what is trained from them."""
    return [[(arm, seed) for seed in experiment.seeds for arm in arms] for arms in ((BASE,), METHODS)]


def run(experiment: Experiment, work: Path, workers: int, cell: Sequence[str] | None = None) -> None:
    """Runs every cell that is not finished: first the starting policies, then what is trained from them.

    Args:
        experiment, work, workers: as of `running.run_cells`, with its errors.
        cell: what names the one cell to run, with its start; all of them if `None`.
    """
    cells = phases(experiment) if cell is None else one_cell(phases(experiment), cell, BASE)
    run_cells(work, experiment.settings(), cells, cell_file, run_cell, experiment, workers, arms="methods")


def cell_file(work: Path, arm: str, seed: int) -> Path:
    """Where a finished cell is kept."""
    return work / "cells" / f"{_slug(arm)}-{seed}.json"


def policy_folder(work: Path, arm: str, seed: int) -> Path:
    """Where a policy is kept."""
    return work / "policies" / f"{_slug(arm)}-{seed}"


def run_cell(experiment: Experiment, arm: str, seed: int, work: Path) -> None:
    """Builds or trains one policy, measures it, and writes its cell."""
    prepare_process()
    begun = time.process_time()
    trainer = None
    if arm == BASE:
        build(experiment, seed, policy_folder(work, arm, seed))
        log: dict[str, Any] = {}
    else:
        trainer, log = train(experiment, arm, seed, work)
    trained = time.process_time()
    cell = {
        "arm": arm,
        "seed": seed,
        **log,
        **measure(experiment, seed, policy_folder(work, arm, seed), trainer),
        "made_with": {"device": "processor, one thread", **versions()},
        "cpu_seconds": {"training": trained - begun, "measuring": time.process_time() - trained},
    }
    write_whole(cell_file(work, arm, seed), cell)


def build(experiment: Experiment, seed: int, folder: Path) -> None:
    """The starting policy of a seed, shared by all arms."""
    from hf_credit.environments.tasks import task_seed
    from hf_credit.rollouts import RolloutRequest
    from hf_credit.trainers.micro import init_scripted_policy

    config = dataclasses.replace(experiment.policy, seed=seed)
    rows = relay(experiment.size).tasks("train", config.episodes)
    starts = [RolloutRequest[Any](task=row, seed=task_seed("train", index)) for index, row in enumerate(rows)]

    player = relay(experiment.size).scripted_player(config.quality)
    init_scripted_policy(relay(experiment.size), player, starts, folder, config)


def train(experiment: Experiment, arm: str, seed: int, work: Path) -> tuple[Any, dict[str, Any]]:
    """Trains from the starting policy; the trainer, its curves, its ledger, and its credit and the truth."""
    from transformers import PrinterCallback

    from hf_credit import CreditConfig, CreditTrainer, methods

    folder = policy_folder(work, arm, seed)
    args = CreditConfig(
        **{
            "output_dir": str(folder),
            "seed": seed,
            "temperature": SAMPLING["temperature"],
            "top_p": SAMPLING["top_p"],
            "top_k": SAMPLING["top_k"],
            "max_completion_length": REPLY_TOKENS,
            **ON_A_PROCESSOR,
            # As in the paper (C3, Table 7).
            "shuffle_dataset": False,
            "warmup_steps": 0.03,
            "adam_beta2": 0.95,
            **experiment.training,
            **METHODS[arm].get("settings", {}),
        }
    )
    first = 10**6 * (seed + 1)  # after the tasks of the scripted play, and others for every seed
    rows = relay(experiment.size).tasks("train", args.max_steps * args.generation_batch_size, start=first)
    method = methods.make(METHODS[arm]["name"], **METHODS[arm]["options"])
    start = str(policy_folder(work, BASE, seed))
    looked_at: list[dict[str, Any]] = []
    looking = _looking_at_credit(experiment, looked_at)
    trainer = CreditTrainer(start, relay(experiment.size), args, rows, method=method, callbacks=[looking])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_model(str(folder))
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    ledger = trainer.ledger
    return trainer, {
        "curves": {name: [round(entry[name], 6) for entry in entries] for name in ("reward", *LEDGER)},
        "ledger": {
            "scoring_events": ledger.scoring_events,
            "prompt_tokens": ledger.prompt_tokens,
            "completion_tokens": ledger.completion_tokens,
            "decisions": dict(ledger.decisions),
        },
        "training_credit": looked_at,
    }


def _looking_at_credit(experiment: Experiment, found: list[dict[str, Any]]) -> Any:
    """Has some updates note how their credit compares with the exact advantages under the weights of then."""
    from hf_credit.trainers.credit import CreditCallback

    class Looking(CreditCallback):
        def on_credit(self, trainer: Any, collected: Any, credit: Any) -> None:
            update = trainer.updates_collected - 1
            if update in experiment.looked_at:
                found.append({"update": update, **_compared(trainer, experiment, collected, credit)})

    return Looking()


def _compared(trainer: Any, experiment: Experiment, collected: Any, credit: Any) -> dict[str, Any]:
    """Credit against exact advantages (eq. 20), by event and over all, and its variance within contexts."""
    from hf_credit.diagnostics.training_credit import credit_quality, credited_decisions, exact_advantages

    decisions = credited_decisions(collected, credit)
    targets = exact_advantages(
        trainer.interaction,
        trainer.chat,
        trainer.accelerator.unwrap_model(trainer.model),
        decisions,
        max_new_tokens=REPLY_TOKENS,
        temperature=SAMPLING["temperature"],
        floor=experiment.floor,
    )
    known = [(one, target) for one, target in zip(decisions, targets, strict=True) if not math.isnan(target)]
    told: dict[str, Any] = {}
    for event in EVENTS:
        own = [(one, target) for one, target in known if event in ("all", one.decision.event)]
        quality = credit_quality(event, [one for one, _ in own], [target for _, target in own], resamples=0)
        told[event] = {
            "messages": quality.measured,
            "fidelity": _number(quality.fidelity.mean),
            "squared_error": _number(quality.squared_error.mean),
            "within_context_variance": _number(quality.variance.within),
        }
    return told


def measure(experiment: Experiment, seed: int, folder: Path, trainer: Any) -> dict[str, Any]:
    """Scores on held-out tasks, and the diagnostics of Appendices I and J on buckets drawn there."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from hf_credit.collaborations.exact_values import exact_values
    from hf_credit.evaluation.play import attempt
    from hf_credit.policies.generation import sampler
    from hf_credit.rollouts import Chat, Engine, RolloutRequest

    interaction = relay(experiment.size)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    chat = Chat(tokenizer)
    exactly = {"max_new_tokens": REPLY_TOKENS, "temperature": SAMPLING["temperature"], "floor": experiment.floor}
    rows = {
        split: [relay_task(*pair, size=experiment.size) for pair in relay_numbers(split, experiment.size)]
        for split in ("held_out", "train")
    }
    scores: dict[str, Any] = {}
    for split, tasks in rows.items():
        values = exact_values(interaction, chat, model, [interaction.start(row, 0) for row in tasks], **exactly)
        scores[f"exact/{split}"] = [round(value.value, 6) for value in values]
    starts = [RolloutRequest[Any](task=row, seed=index) for index, row in enumerate(rows["held_out"])]
    for name, attempts, temperature in (("greedy", 1, 0.0), ("drawn", experiment.attempts, SAMPLING["temperature"])):
        engine = Engine(interaction, chat, sampler(model, tokenizer, **{**SAMPLING, "temperature": temperature}))
        scores[name], _ = attempt(engine, starts, attempts, seed)
    return {"scores": scores, "diagnostics": diagnose(experiment, seed, model, chat, rows["held_out"], trainer)}


def diagnose(
    experiment: Experiment, seed: int, model: Any, chat: Any, rows: Sequence[Mapping[str, Any]], trainer: Any
) -> dict[str, Any]:
    """Fidelity, variance and influence on buckets of the snapshot, with each method's credit for the candidates."""
    from hf_credit.diagnostics import context_variance, influence, influence_by_chance
    from hf_credit.diagnostics.bucket_credit import (
        RememberedValues,
        assigned_credit,
        bucket_fidelity,
        with_exact_values,
    )
    from hf_credit.diagnostics.bucket_sampling import diagnostic_buckets
    from hf_credit.policies.generation import sampler
    from hf_credit.rollouts import Engine, RolloutRequest
    from hf_credit.rollouts.method_context import LocalContext

    interaction = relay(experiment.size)
    engine = Engine(interaction, chat, sampler(model, chat.tokenizer, **SAMPLING))
    plan = dataclasses.replace(experiment.buckets, seed=seed)
    starts = [RolloutRequest[Any](task=row, seed=index) for index, row in enumerate([*rows] * 4)]
    critics = {} if trainer is None else trainer.critics
    context = LocalContext(critics={name: RememberedValues(critic) for name, critic in critics.items()})
    buckets, cost = diagnostic_buckets(engine, starts, plan)
    exactly = {"max_new_tokens": REPLY_TOKENS, "temperature": SAMPLING["temperature"], "floor": experiment.floor}
    buckets = with_exact_values(buckets, interaction, chat, model, **exactly)
    told: dict[str, Any] = {
        "buckets": len(buckets),
        "alone": sum(len(bucket.replayed) < 2 for bucket in buckets),
        "scoring_events": cost.scoring_events,
        "failures": [bucket.failure.value for bucket in buckets],
        "credit": {},
    }
    for estimator, method in ESTIMATORS.items():
        if method == "mappo" and not critics:
            continue
        assigned = assigned_credit(buckets, method, context)
        credits = [[value for value in own if not math.isnan(value)] for own in assigned]
        first = {"replays": 1, "context": context}
        told["credit"][estimator] = {
            "fidelity/estimated": _number(bucket_fidelity(buckets, method, "estimated", context=context).rho),
            "fidelity/estimated, fresh replays": _number(bucket_fidelity(buckets, method, "estimated", **first).rho),
            "fidelity/exact": _number(bucket_fidelity(buckets, method, "exact", context=context).rho),
            "fidelity/exact, one replay": _number(bucket_fidelity(buckets, method, "exact", **first).rho),
            "variance/within": _number(context_variance(credits).within),
            "variance/between": _number(context_variance(credits).between),
        }
    told_to = [[action.responses for action in b.replayed] for b in buckets if b.event == "reasoner"]
    told["influence"] = _number(influence(told_to).mean)
    told["influence_by_chance"] = _number(influence_by_chance(told_to))
    return told


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 6)


def _slug(arm: str) -> str:
    return arm.lower().replace(" ", "_")


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # threads beyond the cores spin against each other
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    main()
