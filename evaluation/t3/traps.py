"""Whether the games of this evidence trap anyone: what stalls cost, what rules find, and what a critic could know.

python evaluation/t3/traps.py --work runs/t3       # plays starts of run.py, made where they are missing
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from experiment import ALGORITHMS, DECIDING, EXPERIMENT, GAMES, GUESS_NUMBERS, HARD, PPO, VANILLA, Game
from run import build, interaction_of, start_folder
from running import ON_A_PROCESSOR, prepare_process
from scipy.stats import t as student
from table import read_cells, success

from hf_credit.evaluation.report import table

Played = Sequence[tuple[Any, list[bool], list[float]]]
"""Episodes, and of each turn whether it stalled and by how many nats it lowered the hypotheses that are left."""


def main(arguments: Sequence[str] | None = None) -> None:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("runs/t3"), help="starts")
    parser.add_argument("--results", type=Path, default=here / "results", help="where traps.md is written")
    parser.add_argument("--starts", type=int, default=4, help="how many starts of each game are played")
    parser.add_argument("--trained", type=int, default=2, help="of how many a training's critic is looked at")
    options = parser.parse_args(arguments)
    prepare_process()
    rows = []
    for name, game in GAMES.items():
        played: list[Any] = []
        for seed in EXPERIMENT.seeds[: options.starts]:
            folder = start_folder(options.work, name, seed)
            if not (folder / "model.safetensors").is_file():
                build(EXPERIMENT, game, seed, folder)
            played += play(game, folder)
        rows.append([game.title.partition(":")[0], *stalls(played), f"{best_explained(played):.2f}"])
    cells = read_cells([here / "results" / "cells.json"])
    critics = [
        [arm, str(seed), *(f"{one:.2f}" for one in explained(options.work, arm, seed))]
        for arm in (VANILLA, HARD)
        for seed in range(options.trained)
    ]
    head = ["", "turns that stalled", "behind a stall", "stalls in which hypotheses fell", "success with a stall"]
    head += ["without", "precision"]
    parts = [
        "# Traps",
        "",
        "Written by `evaluation/t3/traps.py`; do not edit. How to read it: `../README.md`.",
        "",
        f"{options.starts} policies that training begins with, {EXPERIMENT.episodes} held-out episodes each, uncut.",
        "",
        table([*head, "recall", "explained variance to be had"], rows),
        "",
        f"What the deciding test can see with a power of .8 (t test of pairs, p < .05): {detectable(cells):.2f}.",
        "",
        "Explained variance of PPO's critic on GuessNumbers, over the updates of a training: least, mean, most.",
        "",
        table(["", "seed", "least", "mean", "most"], critics),
        "",
    ]
    (options.results / "traps.md").write_text("\n".join(parts))


def play(game: Game, folder: Path) -> Played:
    """Held-out episodes of a start, with what the rule says of their turns."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from hf_credit.environments.tasks import task_seed
    from hf_credit.methods.t3 import Step, make_rule
    from hf_credit.oracles import hypotheses
    from hf_credit.policies.generation import sampler
    from hf_credit.rollouts import Chat, Engine, RolloutRequest

    interaction = interaction_of(game, game.turns[0])
    options = {name: value for name, value in game.rule.items() if name != "truncation"}
    rule = make_rule(game.rule["truncation"], **options)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    length = EXPERIMENT.training["max_completion_length"]
    engine = Engine(interaction, Chat(tokenizer), sampler(model, tokenizer, max_new_tokens=length))
    rows = interaction.tasks("held_out", EXPERIMENT.episodes)
    starts = [
        RolloutRequest[Any](task=row, seed=task_seed("held_out", index), stream=f"held out {index}")
        for index, row in enumerate(rows)
    ]
    found = []
    for episode in engine.run(starts):
        states = [*(one.state for one in episode.decisions), episode.final_state]
        stalled, falls = [], []
        for turn, (before, after) in enumerate(itertools.pairwise(states), start=1):
            if not interaction.pending(after):
                break  # an answer, or the end: no rule is asked
            reply = episode.decisions[turn - 1].action_text
            step = Step(interaction=interaction, before=before, replies=(reply,), after=after, turn=turn, seed=0)
            stalled.append(rule.stalls(rule.progress(step)))
            sizes = [hypotheses.size(world) for world in (step.world_before, step.world_after)]
            falls.append(math.log(sizes[0] / sizes[1]))
        found.append((episode, stalled, falls))
    return found


def stalls(played: Played) -> list[str]:
    """A row: turns that stalled, and those right behind a stall; stalls in which hypotheses fell; success of episodes
    with a stall and without; precision and recall of stalls as turns without progress. All of them are shares."""
    from hf_credit.diagnostics.beliefs import cut_quality

    flags = [(flag, fall) for _, stalled, falls in played for flag, fall in zip(stalled, falls, strict=True)]
    fell = [fall > 0 for flag, fall in flags if flag]
    behind = [after for _, stalled, _ in played for before, after in itertools.pairwise(stalled) if before]
    asked = [(any(stalled), episode.outcome) for episode, stalled, _ in played if stalled]
    quality = cut_quality([stalled for _, stalled, _ in played], [falls for *_, falls in played])
    return [
        f"{fmean(flag for flag, _ in flags):.3f}",
        f"{fmean(behind):.3f}",
        f"{fmean(fell):.3f}",
        *(f"{fmean(outcome for flag, outcome in asked if flag == which):.3f}" for which in (True, False)),
        f"{quality.precision:.3f}",
        f"{quality.recall:.3f}",
    ]


def best_explained(played: Played) -> float:
    """Explained variance of the outcome, over all decisions, by their turn and the hypotheses left before them.

    A table of means, made of every other episode and measured on the rest: what a critic that knew these could have.
    """
    from hf_credit.oracles import hypotheses

    halves: list[list[tuple[tuple[int, int], float]]] = [[], []]
    for number, (episode, *_) in enumerate(played):
        for turn, decision in enumerate(episode.decisions):
            halves[number % 2].append(((turn, hypotheses.size(decision.state.world)), episode.outcome))
    known: dict[tuple[int, int], list[float]] = {}
    for key, outcome in halves[0]:
        known.setdefault(key, []).append(outcome)
    mean = fmean(outcome for _, outcome in halves[0])
    errors = [(outcome - (fmean(known[key]) if key in known else mean)) ** 2 for key, outcome in halves[1]]
    level = fmean(outcome for _, outcome in halves[1])
    return 1 - fmean(errors) / fmean((outcome - level) ** 2 for _, outcome in halves[1])


def detectable(cells: Mapping[Any, Any]) -> float:
    """The difference that a t test of pairs finds with a power of .8, of the spread that the deciding test met."""
    ours, theirs = (cells[(*DECIDING, arm)] for arm in (HARD, VANILLA))
    game = GAMES[DECIDING[0]]
    differences = [success(game, ours[seed]) - success(game, theirs[seed]) for seed in sorted(ours)]
    count, mean = len(differences), fmean(differences)
    error = math.sqrt(sum((one - mean) ** 2 for one in differences) / (count - 1) / count)
    return float(student.ppf(0.975, count - 1) + student.ppf(0.8, count - 1)) * error


def explained(work: Path, arm: str, seed: int) -> list[float]:
    """The least, the mean and the largest explained variance of PPO's critic over a training on GuessNumbers."""
    from transformers import AutoTokenizer, PrinterCallback

    from hf_credit import TruncatedPPOConfig, TruncatedPPOTrainer

    game, start = GAMES[GUESS_NUMBERS], start_folder(work, GUESS_NUMBERS, seed)
    settings = {**ON_A_PROCESSOR, **EXPERIMENT.training, **ALGORITHMS[PPO], **game.settings_of(arm)}
    args = TruncatedPPOConfig(
        output_dir=str(work / "critic"),
        seed=seed,
        algorithm=PPO,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        shuffle_dataset=False,
        **settings,
    )
    interaction = interaction_of(game, game.turns_of(arm))
    rows = interaction.tasks("train", args.max_steps * args.instances_per_update, start=10**6 * (seed + 1))
    tokenizer = AutoTokenizer.from_pretrained(start, padding_side="left")
    trainer = TruncatedPPOTrainer(str(start), interaction, args, rows, processing_class=tokenizer)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    name = "critic/explained_variance"
    values = [entry[name] for entry in trainer.state.log_history if name in entry]
    return [min(values), fmean(values), max(values)]


if __name__ == "__main__":
    main()
