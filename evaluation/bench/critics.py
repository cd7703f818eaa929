"""How much of their targets' variance critics explain in the micro recipes, taught in two ways.

    python evaluation/bench/critics.py WORK    # plays in a folder WORK, resumable, and writes critics.md

A critic explains 1 - Var(target - value) / Var(target), with values from before it learned from the targets.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from hf_credit.evaluation.markdown import table
from hf_credit.evaluation.statistics import mean_with_interval, paired_difference

HERE = Path(__file__).parent
HF_CREDIT = [sys.executable, "-m", "hf_credit.cli"]
GUESSES = (
    "guess_numbers -o source=ar_bench -o digits=2 -o symbols=4 -o turns=6 -o wording=brief --history append "
    "--hidden-size 32 --quality 0.75 --episodes 1500 --epochs 8 --batch-rows 16 --learning-rate 0.006"
)
RECIPES: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "T3's PPO on GuessNumbers, uncut": ("guess_numbers_micro_ppo", GUESSES, ["--truncation", "none"]),
    "CVT-RL on evidence": ("evidence_micro", "evidence --quality 0.5", []),
}
"""Recipe, its start as in its first lines, and what differs from it."""
TAUGHT = [
    *("--critic_whiten", "true", "--critic_clip", "10", "--critic_passes", "16", "--critic_mini_batch_rows", "64"),
    *("--critic_past_updates", "4", "--critic_held_out", "0.1"),
]
WAYS: Mapping[str, Sequence[str]] = {"plain": [], "taught": TAUGHT}
SEEDS = range(3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder of starts and runs")
    work = parser.parse_args().work
    rows = []
    for title, (recipe, start, changes) in RECIPES.items():
        base = work / f"{recipe}_start"
        if not (base / "config.json").exists():
            task, *options = start.split()
            _run("init-policy", task, str(base), *options)
        logs = {way: [_trained(work, recipe, base, way, changes, seed) for seed in SEEDS] for way in WAYS}
        for name in sorted({name for one in logs["plain"] for entry in one for name in entry}):
            if not name.endswith("/explained_variance"):
                continue
            plain, taught = ([_late(one, name) for one in logs[way]] for way in ("plain", "taught"))
            means = [fmean(plain), fmean(taught)]
            rows.append([title, name, *(f"{one:.3f}" for one in means), str(paired_difference(taught, plain))])
        plain, taught = ([_late(one, "reward") for one in logs[way]] for way in ("plain", "taught"))
        rows.append(
            [title, "reward", *(f"{mean_with_interval(one).mean:.3f}" for one in (plain, taught)),
             str(paired_difference(taught, plain))]
        )  # fmt: skip
    text = f"""# Critics: plain, and taught well

Written by `python evaluation/bench/critics.py WORK`. Means over the second half of a training, {len(SEEDS)} seeds.
*plain* is the recipe; *taught* has `{" ".join(TAUGHT)}` beside it.

{table(["recipe", "measure", "plain", "taught", "difference"], rows)}
"""
    (HERE / "critics.md").write_text(text, encoding="utf-8")


def _late(log: Sequence[Mapping[str, float]], name: str) -> float:
    values = [entry[name] for entry in log if name in entry]
    return fmean(values[len(values) // 2 :])


def _trained(
    work: Path, recipe: str, base: Path, way: str, changes: Sequence[str], seed: int
) -> list[dict[str, float]]:
    """The log of a run, played where it is not there yet."""
    output = work / f"{recipe}_{way}_{seed}"
    state = output / "trainer_state.json"
    if not state.exists():
        options = ["--model_name_or_path", str(base), "--output_dir", str(output), "--seed", str(seed)]
        _run("train", recipe, *options, *changes, *WAYS[way])
    log: list[dict[str, float]] = json.loads(state.read_text(encoding="utf-8"))["log_history"]
    return log


def _run(*arguments: str) -> None:
    subprocess.run([*HF_CREDIT, *arguments], check=True)


if __name__ == "__main__":
    main()
