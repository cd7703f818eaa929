"""Trains with verdicts that err at known rates, and with a stronger player's continuations, beside what was predicted
of them. Finished cells are skipped.

python evaluation/trust/run.py --work runs/trust --workers 2 --before    # starts and predictions, before any training
python evaluation/trust/run.py --work runs/trust --workers 2             # goes on where it was stopped
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from erring import Erring
from finished_cells import Cell, common_seeds, interval, read, write
from running import (
    ON_A_PROCESSOR,
    SETTINGS_FILE,
    UNTIL_SPENT,
    one_cell,
    parse_options,
    prepare_process,
    require_same_starts,
    results_folder,
    run_cells,
    take_finished,
    write_whole,
)

from hf_credit import oracles
from hf_credit.evaluation.markdown import table
from hf_credit.evaluation.runs import versions
from hf_credit.evaluation.statistics import paired_difference
from hf_credit.policies.micro import MicroConfig

RESULTS = Path(__file__).resolve().parent / "results"
START, PREDICTED, OUTCOME = "start", "predicted", "outcome"
CONTINUED, CONTINUED_PREDICTED = "continued", "continued_predicted"
ERRORS = {"errs_02": 0.02, "errs_10": 0.1, "errs_30": 0.3}
"""The arms with verdicts of an oracle, by the probability of a wrong one."""
JUDGED = (*ERRORS, CONTINUED)
BLANKS, SEEDS = (12, 6), tuple(range(6))
EXPERIMENT: Mapping[str, Any] = {
    "environment": {"size": 4, "notation": "candidates"},
    "start": {"layers": 1, "quality": 0.82, "episodes": 2000, "epochs": 2, "learning_rate": 8e-3},
    "training": {"steps_per_generation": 8, "learning_rate": 2e-3, "warmup_steps": 8, "max_completion_length": 6},
    "episodes": 16,
    "tokens_per_blank": 9_000,
    "held_out": 512,
    "diagnosis": {"buckets": 512, "candidates": 4, "replays": 16},
    "arms": {
        **{name: {"error": error} for name, error in ERRORS.items()},
        CONTINUED: {"player": {"quality": 1.0, "episodes": 8000}, "rollouts": 1},
    },
}
Name = tuple[int, str, int]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", action="store_true", help="make only what comes before the trainings")
    options = parse_options(parser, arguments, "runs/trust", seeds=len(SEEDS))
    chosen = before() if options.before else [*before(), trainings(options.seeds)]
    if options.cell is not None:
        chosen = one_cell([*before(), trainings()], options.cell, START)
    resumed = options.cell is None
    starts = take_finished(RESULTS, options.work, EXPERIMENT, cell_file, key, START, "arms") if resumed else {}
    for phase in chosen:
        run_cells(options.work, EXPERIMENT, [phase], cell_file, run_cell, EXPERIMENT, options.workers, "arms")
        require_same_starts(starts)
    if resumed:
        cells = read((options.work / "cells").glob("*.json"), key)
        folder = results_folder(options, RESULTS, [*before(), trainings()], cell_file)
        write(cells, folder, markdown(cells))
        shutil.copy(options.work / SETTINGS_FILE, folder)


def before() -> list[list[Name]]:
    """The cells before any training: the starts, then what is predicted at them."""
    return [[(blanks, arm, 0) for blanks in BLANKS] for arm in (START, PREDICTED, CONTINUED_PREDICTED)]


def trainings(seeds: int = len(SEEDS)) -> list[Name]:
    """The trainings, seed by seed."""
    return [(blanks, arm, seed) for seed in SEEDS[:seeds] for blanks in BLANKS for arm in (OUTCOME, *JUDGED)]


def key(cell: Cell) -> tuple[int, str]:
    """What a cell is a seed of."""
    return cell["blanks"], cell["arm"]


def cell_file(work: Path, blanks: int, arm: str, seed: int) -> Path:
    """Where a finished cell is kept."""
    return work / "cells" / f"{blanks}-{arm}-{seed}.json"


def run_cell(experiment: Mapping[str, Any], blanks: int, arm: str, seed: int, work: Path) -> None:
    """Makes, diagnoses or trains one policy, and writes its cell."""
    prepare_process()
    begun, start = time.process_time(), work / "starts" / str(blanks)
    if arm == START:
        found = started(experiment, blanks, start)
    elif arm == PREDICTED:
        judges = {name: judge(experiment, blanks, error, 0) for name, error in ERRORS.items()}
        found = {"verdicts": {name: predicted(experiment, blanks, start, own) for name, own in judges.items()}}
    elif arm == CONTINUED_PREDICTED:
        own = oracles.make("continuations", player=str(player_of(start)))
        found = {"verdicts": {CONTINUED: predicted(experiment, blanks, start, own)}}
    else:
        found = trained(experiment, blanks, arm, seed, start, work)
    cell = {"blanks": blanks, "arm": arm, "seed": seed, **found}
    cell |= {"cpu_seconds": round(time.process_time() - begun, 1), "made_with": versions()}
    write_whole(cell_file(work, blanks, arm, seed), cell)


def setup(experiment: Mapping[str, Any], blanks: int) -> Any:
    """The task: the current grid alone, without instructions."""
    from hf_credit.playing import Sampling
    from hf_credit.tasks import TaskSpec

    sampling = Sampling(
        temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=experiment["training"]["max_completion_length"]
    )
    options = {**experiment["environment"], "blanks": blanks}
    return TaskSpec(task="sudoku", task_options=options, history="current", instructions=False, sampling=sampling)


def judge(experiment: Mapping[str, Any], blanks: int, error: float, seed: int) -> Erring:
    """The oracle of the task with errors."""
    oracle = setup(experiment, blanks).build().default_oracle()
    return Erring(oracle, error, seed)


def player_of(start: Path) -> Path:
    """Where the stronger player of a rung is kept."""
    return start.with_name(f"{start.name}_player")


def started(experiment: Mapping[str, Any], blanks: int, folder: Path) -> dict[str, Any]:
    """Makes the start of a rung and its stronger player, one for all arms and seeds."""
    config = MicroConfig(**experiment["start"])
    warmed_up(experiment, blanks, folder, config)
    warmed_up(experiment, blanks, player_of(folder), replace(config, **experiment["arms"][CONTINUED]["player"]))
    found = {"success": success(experiment, blanks, folder)}
    for name, temperature in (("player_success", 1.0), ("player_success_greedy", 0.0)):
        found[name] = success(experiment, blanks, player_of(folder), temperature)
    return found


def warmed_up(experiment: Mapping[str, Any], blanks: int, folder: Path, config: MicroConfig) -> None:
    """Makes a policy, warmed up on scripted play."""
    from hf_credit.environments.tasks import task_seed
    from hf_credit.rollouts import RolloutRequest
    from hf_credit.trainers.micro import init_scripted_policy

    own = setup(experiment, blanks)
    interaction = own.build()
    requests = (RolloutRequest[Any](task={}, seed=task_seed("train", place)) for place in range(config.episodes))
    player = interaction.scripted_player(config.quality)
    init_scripted_policy(interaction, player, requests, folder, config, callbacks=())
    own.save(folder)


def predicted(experiment: Mapping[str, Any], blanks: int, start: Path, oracle: Any) -> dict[str, Any]:
    """What `hf-credit diagnose --protocol verdicts` says of the start with an oracle."""
    from hf_credit.diagnostics.bucket_sampling import BucketPlan
    from hf_credit.diagnostics.diagnosis_report import numbers
    from hf_credit.diagnostics.policy import Tasks, load_subject
    from hf_credit.diagnostics.verdicts import diagnose_verdicts

    plan = BucketPlan(**experiment["diagnosis"])
    tasks = Tasks(episodes=plan.buckets)
    subject, starts = load_subject(str(start), setup(experiment, blanks), plan, tasks=tasks, device="cpu")
    found = diagnose_verdicts(subject, starts, plan, oracle)
    return {**numbers([found])[0], "pays": found.pays}


def trained(
    experiment: Mapping[str, Any], blanks: int, arm: str, seed: int, start: Path, work: Path
) -> dict[str, Any]:
    """Trains from the start until its tokens are spent; the oracle's errors are others for every seed."""
    import tempfile

    from transformers import AutoTokenizer, PrinterCallback

    from hf_credit import CreditConfig, CreditTrainer, methods
    from hf_credit.policies.saved import load_role_models

    interaction, rows = setup(experiment, blanks).build(), experiment["episodes"]
    tokenizer = AutoTokenizer.from_pretrained(start, padding_side="left")
    method, samplers = methods.make("outcome_reward"), {}
    if arm in ERRORS:
        method = methods.make("verifiable_process", oracle=judge(experiment, blanks, ERRORS[arm], seed))
    elif arm == CONTINUED:
        method = methods.make("mc_process_reward", rollouts=experiment["arms"][arm]["rollouts"])
        most, players = experiment["training"]["max_completion_length"], {"continuations": str(player_of(start))}
        samplers = load_role_models(players, interaction, tokenizer, most, "cpu")
    with tempfile.TemporaryDirectory(dir=work) as folder:
        args = CreditConfig(
            output_dir=folder,
            instances_per_update=rows,
            per_device_train_batch_size=rows,
            seed=seed,
            **ON_A_PROCESSOR,
            **UNTIL_SPENT,
            max_sampled_tokens=experiment["tokens_per_blank"] * blanks,
            **experiment["training"],
        )
        trainer = CreditTrainer(
            str(start),
            interaction,
            args,
            interaction.tasks("train", 50_000, 10**6 * (seed + 1)),  # others for every seed, and than the start's
            method=method,
            processing_class=tokenizer,
            samplers=samplers,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        trainer.save_model(folder)
        found = {"success": success(experiment, blanks, Path(folder))}
    others = {f"tokens_of_{name}": tokens for name, tokens in trainer.ledger.others.items()}
    return {**found, "tokens": trainer.ledger.completion_tokens, **others, "updates": trainer.state.global_step}


def success(experiment: Mapping[str, Any], blanks: int, folder: Path, temperature: float = 1.0) -> float:
    """The success on held-out tasks, one sampled episode each."""
    from hf_credit.evaluation.play import evaluate_model

    own, episodes = setup(experiment, blanks), experiment["held_out"]
    own = replace(own, sampling=replace(own.sampling, temperature=temperature))
    results = evaluate_model(str(folder), own, episodes, seed=0, max_concurrent=512, device="cpu")
    return fmean(results.values("success").values())


def markdown(cells: Mapping[tuple[int, str], Mapping[int, Cell]]) -> str:
    """What was predicted of each oracle, beside what training with it gained over the outcome."""
    rows = []
    for blanks in BLANKS:
        both = (cells.get((blanks, arm), {}).get(0, {}) for arm in (PREDICTED, CONTINUED_PREDICTED))
        said = {name: own for cell in both for name, own in cell.get("verdicts", {}).items()}
        for arm in JUDGED:
            seeds = common_seeds(cells, (blanks, OUTCOME), (blanks, arm))
            ends = [[cells[blanks, name][seed]["success"] for seed in seeds] for name in (OUTCOME, arm)]
            gain = interval(paired_difference(ends[1], ends[0]), signed=True) if len(seeds) > 1 else "not run"
            own = said.get(arm, {})
            numbers = [_shown(own.get(name)) for name in ("error", "own_error", "margin", "agreement")]
            word = {True: "pay", False: "do not pay", None: "cannot be told"}[own.get("pays")] if own else "not run"
            errs = f"{ERRORS[arm]:g}" if arm in ERRORS else "a player's"
            rows.append([str(blanks), errs, *numbers, word, str(len(seeds)), gain])
    header = ["blanks", "errors", "oracle's errors", "policy's errors", "margin", "agreement", "predicted", "seeds"]
    return f"# Predicted and gained\n\n{table([*header, 'gain in success'], rows)}\n"


def _shown(own: Any) -> str:
    if not own or own["mean"] is None:
        return "none"
    return f"{own['mean']:.2f} [{own['low']:.2f}, {own['high']:.2f}]"


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # threads beyond the cores spin against each other
    main()
