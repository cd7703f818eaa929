"""Whether what tables predict holds for networks: three problems, two methods each, ten seeds.

    python evaluation/bench/micro.py register    # writes micro.md: what tables predict, before networks are trained
    python evaluation/bench/micro.py run WORK    # trains, in a folder WORK; fills micro.jsonl, resumable
    python evaluation/bench/micro.py report      # adds what came out to micro.md

The policy is a transformer that reads views as text; J is exact, as its probabilities in all views make a table.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from claims import STEPS, read
from datasets import Dataset
from running import ON_A_PROCESSOR
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback, logging

from hf_credit import CreditConfig, CreditTrainer
from hf_credit.evaluation.markdown import table
from hf_credit.evaluation.statistics import holm, paired_difference, permutation_test
from hf_credit.methods import find, make
from hf_credit.options import options_of
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import Request, RolloutRequest
from hf_credit.rollouts.chat import Chat
from hf_credit.trainers.micro import init_scripted_policy
from hf_credit_bench import make_problem
from hf_credit_bench.cells import SETTINGS, Job, instances_of, learned
from hf_credit_bench.problem import Problem
from hf_credit_bench.table import TablePolicy
from hf_credit_bench.truth import Truth, best

HERE = Path(__file__).parent
RESULTS = HERE / "micro.jsonl"
POINTS = (("late", "carl", "grpo"), ("key", "verifiable_process", "grpo"), ("trap", "grpo", "vineppo"))
"""Problem, the method that tables put ahead, and the other."""
SEEDS = range(10)
RATES = (1e-3, 3e-3, 1e-2)
"""Learning rates; each method has the one that takes the fewest replies on a seed of its own."""
TUNING = 100


@dataclass(frozen=True)
class AtTheStart:
    """Plays a problem as its table does at the start, and says how likely each reply is."""

    policy: TablePolicy

    def probabilities(self, state: Any, request: Request) -> Mapping[str, float]:
        """Of each action."""
        row = self.policy.of(self.policy.problem.view(state.node, request.role))
        return {str(action): float(share) for action, share in enumerate(row)}

    def __call__(self, state: Any, request: Request, draws: random.Random) -> str:
        shares = self.probabilities(state, request)
        return draws.choices(list(shares), list(shares.values()))[0]


def tabulated(model: Any, tokenizer: Any, problem: Problem) -> TablePolicy:
    """The table of a network's probabilities of each action in each view, among actions."""
    chat = Chat(tokenizer)
    table_of = TablePolicy(problem)
    logits = np.full_like(table_of.logits, -math.inf)
    actions = [tokenizer.convert_tokens_to_ids(str(action)) for action in range(logits.shape[1])]
    for view, place in table_of.places.items():
        ids = chat.context([{"role": "user", "content": repr(view)}])
        with torch.no_grad():
            said = model(input_ids=torch.tensor([ids])).logits[0, -1].log_softmax(0)
        count = problem.actions(view)
        logits[place, :count] = said[actions[:count]].double().numpy()
    return TablePolicy(problem, logits)


class _Watch(TrainerCallback):
    """J and the replies spent, before the first update and after each, until half of the gain is made."""

    def __init__(self, trainer: Any, tokenizer: Any, problem: Problem, budget: int, end: float) -> None:
        self.trainer, self.tokenizer, self.problem, self.budget = trainer, tokenizer, problem, budget
        self.end = end
        self.curve: list[tuple[int, float]] = []

    def look(self) -> None:
        spent = sum(self.trainer.ledger.decisions.values())
        self.curve.append((spent, Truth(tabulated(self.trainer.model, self.tokenizer, self.problem)).start))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.look()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.look()
        spent, value = self.curve[-1]
        start = self.curve[0][1]
        control.should_training_stop = spent >= self.budget or value >= start + 0.5 * (self.end - start)


def trained(
    work: Path, problem: str, method: str, rate: float, seed: int, budget: int, end: float
) -> list[tuple[int, float]]:
    """The curve of a network that learns until half of the gain is made, or the budget spent."""
    world = make_problem(problem)
    start = work / f"{problem}_start"
    if not (start / "config.json").exists():
        rows = [RolloutRequest[Any](task={"seed": seed}) for seed in range(400)]
        config = MicroConfig(hidden_size=32, layers=1, heads=2, episodes=len(rows), epochs=4)
        init_scripted_policy(world, AtTheStart(TablePolicy(world)), rows, start, config)
    settings = {name: value for name, value in SETTINGS.items() if name in options_of(find(method))}
    tokenizer = AutoTokenizer.from_pretrained(start, padding_side="left")
    rows_of_update = instances_of(Job(method=method, problem=problem))
    rows_of_update += rows_of_update % 2  # a trainer wants an even number
    args = CreditConfig(
        output_dir=str(work / "run"),
        seed=seed,
        learning_rate=rate,
        lr_scheduler_type="constant",
        max_steps=200,
        instances_per_update=rows_of_update,
        per_device_train_batch_size=rows_of_update,
        max_completion_length=2,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        log_episodes=0,
        **ON_A_PROCESSOR,
    )
    rows = Dataset.from_list([{"seed": 1_000_000 * seed + place} for place in range(200 * rows_of_update)])
    trainer = CreditTrainer(str(start), world, args, rows, method=make(method, **settings), processing_class=tokenizer)
    trainer.remove_callback(PrinterCallback)
    watch = _Watch(trainer, tokenizer, world, budget, end)
    trainer.add_callback(watch)
    trainer.train()
    return watch.curve


def half_way(curve: Sequence[tuple[int, float]], start: float, end: float, budget: int) -> int:
    """Replies spent until half of what there is to gain is gained; the budget where it is not."""
    good = start + 0.5 * (end - start)
    return min(next((spent for spent, value in curve if value >= good), budget), budget)


def _predictions() -> list[list[Any]]:
    rows = []
    for problem, ahead, behind in POINTS:
        spent = []
        for method in (ahead, behind):
            result = learned(Job(method=method, problem=problem, steps=STEPS), SEEDS)
            spent.append(
                statistics.mean(half_way(one, result.start, result.end, result.budget) for one in result.curves)
            )
        rows.append([problem, ahead, behind, *(f"{one:.0f}" for one in spent), f"{spent[1] / spent[0]:.2f}"])
    return rows


def register() -> None:
    """Writes what tables predict."""
    header = ["problem", "ahead", "behind", "replies ahead", "replies behind", "predicted factor"]
    text = f"""# Do tables predict what networks do?

Registered before any network was trained, by `python evaluation/bench/micro.py register`.

- **Prediction**: replies that a table spends until half of the exact gain, a mean over {len(SEEDS)} seeds.
- **Networks**: a transformer of one layer, warmed up on the table's start; `CreditTrainer` with AdamW; J is exact.
  Learning rate of {", ".join(f"{one:g}" for one in RATES)} that takes the fewest replies on seed {TUNING}; at most
  three times the bench's budget, as a network's steps are smaller.
- **Test**: paired sign-flip test of the logarithms of the replies, two-sided, ten seeds (least p .002), Holm over the
  three. *Holds*: p < .05 with the sign of the prediction; the factor is reported next to the predicted one.

{table(header, _predictions())}
"""
    (HERE / "micro.md").write_text(text, encoding="utf-8")


def run(work: Path) -> None:
    """Trains what the file lacks."""
    logging.set_verbosity_error()
    for problem, *both in POINTS:
        budget, end = _ends(problem)
        for method in both:
            tried = {rate: _half(_cell(work, problem, method, rate, TUNING), end, budget) for rate in RATES}
            rate = min(tried, key=lambda one: tried[one])
            for seed in SEEDS:
                _cell(work, problem, method, rate, seed)


def _ends(problem: str) -> tuple[int, float]:
    """What may be spent, and the most that is to be had."""
    budget = 3 * learned(Job(method="grpo", problem=problem), []).budget
    return budget, best(TablePolicy(make_problem(problem)))


def _cell(work: Path, problem: str, method: str, rate: float, seed: int) -> list[tuple[int, float]]:
    """The curve of a run, which is trained where the file lacks it."""
    budget, end = _ends(problem)
    key = json.dumps([problem, method, rate, seed, budget])
    if (done := read(RESULTS).get(key)) is not None:
        return [(int(spent), value) for spent, value in done["curve"]]
    curve = trained(work, problem, method, rate, seed, budget, end)
    cell = {"key": key, "problem": problem, "method": method, "seed": seed, "rate": rate, "curve": curve}
    with RESULTS.open("a") as file:
        file.write(json.dumps(cell) + "\n")
    print(problem, method, rate, seed, f"{curve[-1][1]:.3f} after {curve[-1][0]}", flush=True)
    return curve


def _half(curve: Sequence[Any], end: float, budget: int) -> int:
    return half_way(curve, curve[0][1], end, budget)


def report() -> None:
    """Adds what came out."""
    cells = list(read(RESULTS).values())
    rows, values = [], []
    for problem, *both in POINTS:
        budget, end = _ends(problem)
        spent = []
        for method in both:
            own = {one["seed"]: one["curve"] for one in cells if [one["problem"], one["method"]] == [problem, method]}
            spent.append([_half(own[seed], end, budget) for seed in SEEDS])
        logs = [np.log(one) for one in (spent[1], spent[0])]
        test, factor = permutation_test(*logs), paired_difference(*logs)
        values.append(test.p_value)
        low, mean, high = (f"{math.exp(one):.2f}" for one in (factor.low, factor.mean, factor.high))
        rows.append([problem, *both, *(f"{statistics.mean(one):.0f}" for one in spent), f"{mean} [{low}, {high}]"])
    rows = [[*row, f"{adjusted:.4f}"] for row, adjusted in zip(rows, holm(values), strict=True)]
    header = ["problem", "ahead", "behind", "replies ahead", "replies behind", "factor", "p after Holm"]
    path = HERE / "micro.md"
    registered = path.read_text(encoding="utf-8").partition("\n## What came out\n")[0]
    text = f"{registered.rstrip()}\n\n## What came out\n\nWritten by `python evaluation/bench/micro.py report`.\n\n"
    path.write_text(text + table(header, rows) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("register", "run", "report"))
    parser.add_argument("work", type=Path, nargs="?", help="folder of starts, to run")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.command == "register":
        register()
    elif args.command == "run":
        run(args.work)
    else:
        report()


if __name__ == "__main__":
    main()
