"""Trains a pretrained chat model on two tasks by several methods at equal tokens. Finished cells are skipped.

python evaluation/real/run.py --model MODEL --work runs/real --workers 2
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "sql_agent"))

from running import (
    ON_A_PROCESSOR,
    SETTINGS_FILE,
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
EXAMPLE = HERE.parents[1] / "examples" / "sql_agent"
METHODS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "sudoku": {"outcome_reward": {}, "verifiable_process": {}},
    "sudoku_8": {"outcome_reward": {}, "verifiable_process": {}},
    "sudoku_12": {f"{one}@1e-05": {} for one in ("outcome_reward", "verifiable_process", "outcome_from_walks")},
    "sql_agent": {
        "grpo": {"group_size": 8},
        "turn_credit": {"group_size": 8},
        "replay_loo": {"budget": 8, "alternatives": [2, 2, 2]},
        "active_replay": {"group_size": 8},
    },
    "lookups": {
        **{one: {"group_size": 8} for one in ("grpo", "grpo_from_walks", "grpo_from_own")},
        "replay_loo@1e-05": {"budget": 8, "alternatives": [2, 2, 2]},
    },
    "lookups_taught": {one: {"group_size": 8} for one in ("grpo", "grpo_from_walks")},
}
"""Of each task the methods and their options; the first is the one that the others are compared with.

After an @ stands a rate other than that of `EXPERIMENT`.
"""
LAST = ("turn_credit", "outcome_from_walks@1e-05", "grpo_from_own", "replay_loo@1e-05")
"""Methods whose seeds are run once those of all others are finished, and which are tested by themselves."""
METHOD_OF = {"outcome_from_walks": "outcome_reward", "grpo_from_walks": "grpo", "grpo_from_own": "grpo"}
"""The method of an arm that is not called like it, without its rate."""
START, BEFOREHAND = "start", "beforehand"
SEEDS = range(10)
RATES, PILOT_SEED = (3e-5, 1e-5), 100
"""Of a pilot, which is measured in training alone."""
LOOKS = "looks.json"
Name = tuple[str, str, int]
ARMS = "tasks"
"""The key of the settings under which there may be more than when finished cells were run."""
LONG: Mapping[str, Any] = {
    "options": {"notation": "candidates"},
    "instructions": False,
    "training": {"instances_per_update": 16, "per_device_train_batch_size": 16, "max_completion_length": 14},
    "held_out": 256,
    "collections": 8,  # of which the signal is told beforehand
    "warm_up": {  # one start for all rungs; its adapter is in `start`
        "blanks": 12,
        "episodes": 2000,
        "quality": 0.9,
        "rank": 8,
        "rows": 32,
        "rate": 1e-3,
        "updates": 320,
        "every": 40,
        "enough": 0.03,
    },
    "accepted": (0.01, 0.4),
}
"""What the longer rungs of Sudoku share."""
LOOKUPS: Mapping[str, Any] = {
    "agent": "lookups",
    "training": {
        "instances_per_update": 2,
        "per_device_train_batch_size": 2,
        "max_completion_length": 16,
        "learning_rate": 1e-5,  # at 3e-5 a rare outcome collapsed
    },
    "grpo_from_walks": {"starts": "lookups_player:Player"},
    "grpo_from_own": {"starts": "own"},
    "warm_up": {
        "player": "lookups_player:Player",
        "episodes": 1200,
        "quality": 0.9,
        "rank": 8,
        "rows": 32,
        "in_order": True,  # the moves of an episode share their notes, which an update reads once
        "rate": 5e-4,
        "updates": 320,
        "every": 40,
        "enough": 0.03,
    },
    "collections": 8,
    "told": ["grpo", "replay_loo"],  # whose signal is told beforehand
    "accepted": (0.01, 0.25),
    "budget": 16_000,
    "pilot": {  # in place of the rates and sizes that the others were tried with
        "arms": ["grpo_from_walks"],
        "rates": [2e-6],
        "training": {"instances_per_update": 8, "per_device_train_batch_size": 8},
        "budget": 40_000,
    },
    "held_out": 256,
}
"""What both starts of `lookups` share."""
EXPERIMENT: Mapping[str, Any] = {
    "tasks": {
        "sudoku": {
            "methods": METHODS["sudoku"],
            "blanks": 4,
            "training": {"instances_per_update": 16, "per_device_train_batch_size": 16, "max_completion_length": 20},
            "warm_up": {
                "blanks": 4,
                "episodes": 3000,  # that the start imitates
                "quality": 0.9,  # of their play
                "rank": 0,  # of its adapter; 0 trains all weights
                "rows": 32,  # of an update
                "rate": 3e-4,
                "updates": 600,  # at most
                "every": 10,  # updates between two looks at its success
                "enough": 0.2,  # the first success from here on ends it
            },
            "accepted": (0.05, 0.6),  # success of a start that methods can be compared from
            "budget": 10_000,  # tokens sampled in training; the update that passes it is the last
            "held_out": 256,  # episodes that measure a policy, one of each task
        },
        "sudoku_8": {"methods": METHODS["sudoku_8"], "blanks": 8, "budget": 16_000, **LONG},
        "sudoku_12": {
            "methods": METHODS["sudoku_12"],
            "blanks": 12,
            "budget": 24_000,
            **LONG,
            "outcome_from_walks": {"starts": "oracle"},
        },
        "sql_agent": {
            "methods": METHODS["sql_agent"],
            "training": {"instances_per_update": 2, "per_device_train_batch_size": 2, "max_completion_length": 48},
            # Of its shorter replays, so that an update takes about as many tokens as of the others.
            "replay_loo": {"instances_per_update": 6, "per_device_train_batch_size": 6},
            "warm_up": 16,  # updates, by `make_start` of the example
            "accepted": (0.05, 0.6),
            "budget": 8_000,  # some six updates
            "held_out": 116,
        },
        "lookups": {"methods": METHODS["lookups"], **LOOKUPS},
        "lookups_taught": {
            "methods": METHODS["lookups_taught"],
            **LOOKUPS,
            "training": {
                **LOOKUPS["training"],
                "instances_per_update": 8,
                "per_device_train_batch_size": 8,
                "learning_rate": 2e-6,
            },
            "warm_up": {**LOOKUPS["warm_up"], "quality": 1.0, "enough": 0.08},
            "told": ["grpo"],
            "budget": 64_000,
            "pilot": {"arms": ["grpo_from_walks"], "rates": [5e-6], "budget": 32_000},
        },
    },
    "training": {
        "max_steps": 1000,
        "learning_rate": 3e-5,  # of the two of the pilot, with which every method learned more
        "lr_scheduler_type": "constant",
        "beta": 0.0,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "rows_per_forward": 8,
        "log_episodes": 0,
        "critic_first_updates": 2,
        "critic_learning_rate": 1e-5,
    },
    "looked_at": 64,  # episodes, of tasks of the training, that say whether a warm-up is enough
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, help="the folder of the pretrained model; needed until starts are made")
    parser.add_argument("--task", choices=METHODS, help="run the cells of one task alone")
    parser.add_argument("--before", action="store_true", help="make only what comes before the trainings")
    parser.add_argument("--pilot", action="store_true", help="train at other rates instead, with a seed of its own")
    options = parse_options(parser, arguments, "runs/real", seeds=len(SEEDS))
    experiment = {**EXPERIMENT, "model": str(options.model)}
    from table import write_tables  # which takes the names of cells from here

    if options.cell is not None:
        phases = one_cell([*before(METHODS), trainings(METHODS)], options.cell, START)
        run_cells(options.work, EXPERIMENT, phases, cell_file, run_cell, experiment, options.workers, ARMS)
        return
    results = options.results or HERE / "results"
    starts = take_finished(results, options.work, EXPERIMENT, cell_file, key, START, ARMS)
    # Their weights are the same on every machine, while sampled episodes differ in rounding.
    of_kept_adapters = {
        cell_file(options.work, task, START, 0) for task in METHODS if "collections" in EXPERIMENT["tasks"][task]
    }
    tasks = [options.task] if options.task else METHODS
    cells = pilots(tasks) if options.pilot else [one for one in trainings(tasks) if one[-1] < options.seeds]
    cells = [cell for cell in cells if not cell_file(options.work, *cell).is_file()]
    unfinished = list(dict.fromkeys(task for task, *_ in cells))
    for phase in [*before(unfinished), *([] if options.before else [cells])]:
        run_cells(options.work, EXPERIMENT, [phase], cell_file, run_cell, experiment, options.workers, ARMS)
        require_same_starts({made: committed for made, committed in starts.items() if made not in of_kept_adapters})
        to_make = [committed for made, committed in starts.items() if not made.is_file()]
        write_tables([*(options.work / "cells").glob("*.json"), *to_make], results)
        shutil.copy(options.work / SETTINGS_FILE, results)


def before(tasks: Iterable[str]) -> list[list[Name]]:
    """The cells before any training: the starts, one after the other, and what the signal is at them."""
    told = [(task, BEFOREHAND, 0) for task in tasks if "collections" in EXPERIMENT["tasks"][task]]
    return [*([(task, START, 0)] for task in tasks), told]


def trainings(tasks: Iterable[str]) -> list[Name]:
    """The trainings, seed by seed, those of `LAST` behind all others."""
    cells = [(task, method, seed) for seed in SEEDS for task in tasks for method in METHODS[task]]
    return sorted(cells, key=lambda cell: cell[1] in LAST)


def pilots(tasks: Iterable[str]) -> list[Name]:
    """The trainings of a pilot: each method at each rate, or those that a task names."""
    found = []
    for task in tasks:
        plain = [name for name in map(name_of, METHODS[task]) if name not in METHOD_OF]
        own = EXPERIMENT["tasks"][task].get("pilot", {"arms": plain, "rates": RATES})
        found += [(task, f"{name}@{rate:g}", PILOT_SEED) for rate in own["rates"] for name in own["arms"]]
    return found


def name_of(arm: str) -> str:
    """The name of an arm without its rate."""
    return arm.partition("@")[0]


def key(cell: Mapping[str, Any]) -> tuple[str, str]:
    """What a cell is a seed of."""
    return cell["task"], cell["method"]


def cell_file(work: Path, task: str, method: str, seed: int) -> Path:
    """Where a finished cell is kept."""
    return work / "cells" / f"{task}-{method}-{seed}.json"


def run_cell(experiment: Mapping[str, Any], task: str, arm: str, seed: int, work: Path) -> None:
    """Makes the start, or trains from it until the budget is spent; measures, but not in a pilot; writes the cell."""
    prepare_process()
    import torch
    from transformers import AutoTokenizer, PrinterCallback, set_seed

    from hf_credit import CreditConfig, CreditTrainer, methods

    one, start = experiment["tasks"][task], work / task
    method, rate = name_of(arm), arm.partition("@")[2]
    if method == BEFOREHAND:
        plain = (name for name in map(name_of, METHODS[task]) if name not in METHOD_OF)
        compared = one.get("told", list(plain))
        words = ["--dataset", str(rows_of(one["agent"], "train")), "--trust-remote-code"] if "agent" in one else []
        told = signals(start, compared, one["collections"], words, EXAMPLE if words else None)
        cell = {"task": task, "method": arm, "seed": seed, **told}
        write_whole(cell_file(work, task, arm, seed), {**cell, "made_with": versions()})
        return
    interaction, train, held_out = opened(one)
    cell: dict[str, Any] = {"task": task, "method": arm, "seed": seed}
    if method == START:
        make = warmed_up_agent if task == "sql_agent" else warmed_up
        model, tokenizer, cell["warm_up"] = make(experiment, task, interaction, train, start)
    else:
        tokenizer = AutoTokenizer.from_pretrained(start, padding_side="left")
        options = next(options for name, options in one["methods"].items() if name_of(name) == method)
        settings = {**on_this_machine(), **experiment["training"], **one["training"], **one.get(method, {})}
        piloted = one.get("pilot", {}) if seed == PILOT_SEED else {}
        settings |= {"max_sampled_tokens": piloted.get("budget", one["budget"]), **piloted.get("training", {})}
        settings |= {"learning_rate": float(rate)} if rate else {}
        trainer = CreditTrainer(
            str(start),
            interaction,
            CreditConfig(output_dir=str(work / f"trained_{os.getpid()}"), **settings, seed=seed),
            train,
            method=methods.make(METHOD_OF.get(method, method), **options),
            processing_class=tokenizer,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        log = [entry for entry in trainer.state.log_history if "loss" in entry]
        model = trainer.model
        ledger = trainer.ledger
        cell |= {
            "curve": curve(log),
            "updates": trainer.state.global_step,
            "sampled_tokens": ledger.completion_tokens,
            "tokens": ledger.tokens,
            "scores": ledger.scoring_events,
            "seconds": round(sum(entry["step_time"] for entry in log), 1),
        }
    set_seed(seed)
    if seed != PILOT_SEED:
        cell["success"] = success(model, tokenizer, interaction, held_out, one["training"]["max_completion_length"])
    low, high = one["accepted"]
    if method == START and not low <= cell["success"] <= high:
        raise ValueError(f"a start must succeed in {low} to {high} of its episodes, got {cell['success']}; change it.")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "processor"
    getattr(interaction, "close", lambda: None)()
    write_whole(cell_file(work, task, arm, seed), {**cell, "made_with": {"device": device, **versions()}})


def opened(one: Mapping[str, Any]) -> tuple[Any, Any, list[Any]]:
    """The task, its rows for training, and the starts of the episodes that measure a policy."""
    from datasets import Dataset

    from hf_credit import make
    from hf_credit.agents import AgentInteraction
    from hf_credit.rollouts import EnvironmentInteraction, RolloutRequest

    if "blanks" in one:
        world = make("sudoku", size=4, blanks=one["blanks"], **one.get("options", {}))
        sudoku = EnvironmentInteraction(world, "current", one.get("instructions", True))
        rows = list(sudoku.tasks("held_out", one["held_out"]))
        starts = [RolloutRequest[Any](task=dict(row), seed=row["seed"]) for row in rows]
        return sudoku, sudoku.tasks("train", 100_000), starts
    agent = one.get("agent", "sql_agent")
    train, held_out = (
        [json.loads(line) for line in rows_of(agent, split).read_text().splitlines()]
        for split in ("train", "held_out")
    )
    starts = [RolloutRequest[Any](task=row, seed=place) for place, row in enumerate(held_out[: one["held_out"]])]
    return AgentInteraction(f"{agent}:{agent}"), Dataset.from_list(train), starts


def rows_of(agent: str, split: str) -> Path:
    """The file with the task rows of a program."""
    return EXAMPLE / (f"{split}.jsonl" if agent == "sql_agent" else f"{agent}_{split}.jsonl")


def on_this_machine() -> dict[str, Any]:
    """Settings that say where a training runs; the weights are float32 under autocast to bfloat16."""
    import torch

    if torch.cuda.is_available():
        return {**ON_A_PROCESSOR, "use_cpu": False, "bf16": True, "max_concurrent_episodes": 512}
    return {**ON_A_PROCESSOR, "bf16": True}


def warmed_up(
    experiment: Mapping[str, Any], task: str, interaction: Any, train: Any, folder: Path
) -> tuple[Any, Any, list[list[float]]]:
    """Makes a start from the adapter that is kept with this file, or trains it; saves it with its task.

    Returns:
        The model, its tokenizer, and the updates and success at every look of its training.
    """
    import torch
    from peft import PeftModel, get_peft_model_state_dict
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from hf_credit.tasks import Sampling, TaskSpec

    one, pretrained = experiment["tasks"][task], experiment["model"]
    if not one["warm_up"]["rank"]:
        looks, model = imitated(experiment, task, folder)
    else:
        kept = HERE / (f"{START}_{task}" if "agent" in one else START)
        adapter = kept if kept.is_dir() else folder.parent / kept.name
        if not (adapter / LOOKS).is_file():
            looks, trained = imitated(experiment, task, adapter)
            halves = {name: one.bfloat16() for name, one in get_peft_model_state_dict(trained).items()}
            trained.save_pretrained(adapter, state_dict=halves)  # half the size, in the repository
            write_whole(adapter / LOOKS, looks)
        looks = json.loads((adapter / LOOKS).read_text(encoding="utf-8"))
        model = AutoModelForCausalLM.from_pretrained(pretrained, dtype=torch.float32)
        model = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    tokenizer = AutoTokenizer.from_pretrained(pretrained, padding_side="left")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    sampling = Sampling(max_new_tokens=one["training"]["max_completion_length"], temperature=1.0, top_p=1.0, top_k=0)
    TaskSpec.of(interaction, sampling=sampling).save(folder)  # for `hf-credit diagnose`
    return model, tokenizer, looks


def imitated(experiment: Mapping[str, Any], task: str, folder: Path) -> tuple[list[list[float]], Any]:
    """Trains the model on play of the task's player, or of its script, until its success in training is enough.

    Returns:
        The updates and success at every look, and the model.
    """
    from peft import LoraConfig
    from transformers import AutoTokenizer, PrinterCallback, TrainerCallback, set_seed
    from trl import SFTConfig

    from hf_credit.policies.scripted import demonstrations, player_of, select, walk
    from hf_credit.rollouts import Chat, RolloutRequest
    from hf_credit.trainers.warm_up import WarmUpTrainer

    one = experiment["tasks"][task]
    how = one["warm_up"]
    interaction, train, _ = opened({**one, "blanks": how["blanks"]} if "blanks" in one else one)
    tokenizer = AutoTokenizer.from_pretrained(experiment["model"], padding_side="left")
    player = player_of(interaction, how["quality"], how.get("player"))
    rows = [dict(train[place % len(train)]) for place in range(how["episodes"])]
    if how.get("in_order"):
        random.Random(0).shuffle(rows)  # of all databases
    starts = [RolloutRequest[Any](task=row, seed=row.get("seed", place)) for place, row in enumerate(rows)]
    walks = ((start, walk(interaction, player, start)) for start in starts)
    found, _ = select(demonstrations(interaction, Chat(tokenizer), player, walks))
    set_seed(0)
    args = SFTConfig(
        output_dir=str(folder),
        learning_rate=how["rate"],
        per_device_train_batch_size=how["rows"],
        max_length=None,
        max_steps=how["updates"],
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=10,
        train_sampling_strategy="sequential" if how.get("in_order") else "random",
        **{name: value for name, value in on_this_machine().items() if name != "max_concurrent_episodes"},
    )
    adapter = (
        LoraConfig(r=how["rank"], lora_alpha=2 * how["rank"], target_modules="all-linear") if how["rank"] else None
    )
    trainer = WarmUpTrainer(str(experiment["model"]), args, found, processing_class=tokenizer, peft_config=adapter)
    looks: list[list[float]] = []

    class Look(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % how["every"] == 0:
                some = starts[: experiment["looked_at"]]
                most = one["training"]["max_completion_length"]
                looks.append([state.global_step, success(trainer.model, tokenizer, interaction, some, most)])
                control.should_training_stop |= looks[-1][1] >= how["enough"]

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Look())
    trainer.train()
    return looks, trainer.model


def warmed_up_agent(
    experiment: Mapping[str, Any], task: str, interaction: Any, train: Any, folder: Path
) -> tuple[Any, Any, list[list[float]]]:
    """The start of `make demo-real`, as `warmed_up` returns one."""
    from demo_real import make_start
    from transformers import AutoModelForCausalLM, AutoTokenizer

    updates = experiment["tasks"][task]["warm_up"]
    make_start(Path(experiment["model"]).resolve(), folder.resolve(), updates)
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), [[updates]]


def success(model: Any, tokenizer: Any, interaction: Any, starts: Sequence[Any], most: int) -> float:
    """The mean success of episodes; those that ended in an error are none."""
    import torch

    from hf_credit.policies.generation import sampler
    from hf_credit.policies.scripted import success_of
    from hf_credit.rollouts import Chat, Engine

    engine = Engine(interaction, Chat(tokenizer), sampler(model, tokenizer, max_new_tokens=most))
    some = 32 if model.device.type == "cpu" else 128  # a processor's caches hold no more
    with torch.autocast(model.device.type, torch.bfloat16):
        episodes = [one for first in range(0, len(starts), some) for one in engine.run(starts[first : first + some])]
    return fmean(success_of(episode) for episode in episodes if episode.ending != "error")


def curve(log: Sequence[Mapping[str, float]]) -> list[list[float]]:
    """Tokens sampled and the success of the episodes from first states, of every update that has any."""
    found = [(entry["budget/completion_tokens"], entry.get("success", entry["reward"])) for entry in log]
    return [[tokens, round(value, 4)] for tokens, value in found if value is not None]


if __name__ == "__main__":
    main()
