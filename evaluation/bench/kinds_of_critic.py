"""What a critic's error costs PPO: exact, noisy, taught and untaught critics in all problems, and RLOO without one.

    python evaluation/bench/kinds_of_critic.py WORK    # plays in a folder WORK, resumable, writes kinds_of_critic.md

Registered before the run: PPO with a taught critic learns more than with an untaught one (area under the learning
curve at equal tokens; paired permutation test over ten seeds in each problem, Holm over the problems, sign above 0).
Ten pairs reach p = 2/1024 = .002, and Holm over 15 problems asks for .0033 at first, so the test can decide.
Everything else is description.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from claims import STEPS

from hf_credit.evaluation.markdown import table
from hf_credit.evaluation.statistics import holm, paired_difference, permutation_test
from hf_credit_bench import cells

HERE = Path(__file__).parent
CRITICS = ("exact", "noisy", "taught", "untaught")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder of the cells")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    path = given.work / "cells.jsonl"
    asked = {"steps": STEPS}
    todo = [job for critic in CRITICS for job in cells.jobs(["ppo"], critic=critic, **asked)]
    todo += cells.jobs(["rloo"], **asked)
    for _ in cells.run(todo, path, given.processes):
        pass
    (HERE / "kinds_of_critic.md").write_text(page(cells.read(path), todo), encoding="utf-8")


def page(known: Any, todo: Sequence[cells.Job]) -> str:
    """The table, from the cells."""
    areas = {(job.problem, job.method, job.critic): known[job.key]["areas"] for job in todo}
    problems = [problem for problem, method, _ in areas if method == "rloo" and areas[problem, "ppo", "exact"]]
    gains = {one: (areas[one, "ppo", "taught"], areas[one, "ppo", "untaught"]) for one in problems}
    adjusted = holm([permutation_test(*pair).p_value for pair in gains.values()])
    rows = []
    for problem, p in zip(problems, adjusted, strict=True):
        means = [fmean(areas[problem, "ppo", critic]) for critic in CRITICS]
        numbers = [f"{one:.3f}" for one in (fmean(areas[problem, "rloo", "exact"]), *means)]
        rows.append([problem, *numbers, str(paired_difference(*gains[problem])), f"{p:.4f}"])
    header = ["problem", "RLOO", *(f"PPO, {critic}" for critic in CRITICS), "taught less untaught", "p (Holm)"]
    won = sum(p < 0.05 and fmean(one) > fmean(other) for p, (one, other) in zip(adjusted, gains.values(), strict=True))
    return f"""# Kinds of critic

Written by `python evaluation/bench/kinds_of_critic.py WORK`: the area under the learning curve (0: the start, 1: the
best there is) at equal tokens, means over ten seeds. The registered claim, that a taught critic gains on an untaught
one, holds in {won} of {len(rows)} problems.

{table(header, rows)}
"""


if __name__ == "__main__":
    main()
