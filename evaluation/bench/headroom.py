"""What credit can gain in each problem at most, by enumeration: policies that follow the exact gradient.

    python evaluation/bench/headroom.py

writes `headroom.md` next to it. The outcome and exact advantages have the same expected update, so what any unbiased
credit gains is less noise, and at best an update without any. Its curve has nothing that is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow.parquet as pq

from hf_credit.evaluation.markdown import Markup, code, table
from hf_credit.evaluation.statistics import paired_difference
from hf_credit_bench import Problem, Truth, best, make_problem
from hf_credit_bench.cells import LEAST_GAIN, UPDATES, Cells, from_rows
from hf_credit_bench.fields import BASE, EXACT, RUNGS, areas_of, gains, on_rung
from hf_credit_bench.guide import signed
from hf_credit_bench.measures import STEPS
from hf_credit_bench.network import policy_at_start

HERE = Path(__file__).parent


def curve(problem: Problem, step: float, updates: int = UPDATES) -> list[float]:
    """The value by which learning is judged before each update of the norm `step` along the exact gradient."""
    policy, values = policy_at_start(problem), []
    for _ in range(updates):
        truth = Truth(policy)
        gradient = policy.pulled(truth.gradient)
        policy = policy.moved(step * gradient / max(float(np.linalg.norm(gradient)), 1e-12))
        values.append(truth.judged)
    return values


def chosen(worth: Callable[[int], float], sizes: int) -> int:
    """The place of the step size, by the rule of the bench."""
    place = sizes // 2
    while place + 1 < sizes and worth(place + 1) > worth(place) + LEAST_GAIN:
        place += 1
    while place and worth(place - 1) > worth(place):
        place -= 1
    return place


def without_noise(problem: Problem, steps: Sequence[float] = STEPS) -> float:
    """The area under the curve, 0 at the start and 1 at the optimum, with the best step size."""
    policy = policy_at_start(problem)
    start, end = Truth(policy).judged, best(policy)

    @cache
    def worth(place: int) -> float:
        return (fmean(curve(problem, steps[place])) - start) / (end - start)

    return worth(chosen(worth, len(steps)))


def report(cells: Cells) -> str:
    """The page."""
    rows = []
    for rung in RUNGS:
        found = on_rung(cells, rung)
        base, limit = areas_of(found, BASE), without_noise(make_problem(rung.problem, **rung.dials))
        assert base is not None
        most = paired_difference([limit] * len(base), base)
        own = signed(gains(found)[EXACT])
        rows.append([Markup(code(rung.problem)), rung.said, f"{limit:.2f}", f"{fmean(base):.2f}", signed(most), own])
    header = ["problem", "field", "without noise", code(BASE), "gain without noise", "gain of exact advantages"]
    return f"""# What credit can gain at most

Areas under the learning curve, 0 at the start and 1 at the optimum. *Without noise* is enumerated: the policy follows
the exact gradient in {UPDATES} updates, as many as one that plays 16 episodes in each, with the step size that the
bench would choose. Where rewards are true (not in `hack`), the outcome and exact advantages have the same expected
update, so this is what unbiased credit comes to as its noise goes to 0. `{BASE}` and the gain of exact advantages are
means over the ten seeds of the cells, since they learn from sampled updates; the interval of the gain without noise is
that of `{BASE}`. Exact advantages leave the noise of which tasks and actions are drawn, which is not for credit to
remove. Written by `python evaluation/bench/headroom.py`.

{table(header, rows)}
"""


def main() -> None:
    cells = from_rows(pq.read_table(HERE / "cells.parquet").to_pylist())
    (HERE / "headroom.md").write_text(report(cells), encoding="utf-8")


if __name__ == "__main__":
    main()
