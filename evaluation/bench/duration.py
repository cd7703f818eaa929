"""How long the whole bench takes, from the seconds of an update in its cells.

    python evaluation/bench/duration.py

A cell plays some updates for its score and for its size. It learns with ten seeds, and with two for each step size
that it tried, with a budget of tokens each. Between updates the exact values of the new policy are computed, which is
timed here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from hf_credit_bench import Truth, make_problem
from hf_credit_bench.cells import from_rows
from hf_credit_bench.fields import rung_of
from hf_credit_bench.measures import STEPS
from hf_credit_bench.network import policy_at_start

SIZING, TRIES = 8, 2
"""The updates with which an update's size is found, and the seeds of a step size that is tried."""


def tried(place: int, sizes: int = len(STEPS)) -> int:
    """The number of step sizes whose area was asked for until one was taken: upwards from the middle until one gains
    no more, and the one below."""
    middle = sizes // 2
    if place > middle:
        return min(place + 1, sizes - 1) - middle + 1
    return middle + 1 - max(place - 1, 0) + 1


def updates_of(cell: Mapping[str, Any]) -> int:
    """The updates of a cell."""
    if not cell["areas"]:
        return 0
    learners = len(cell["areas"]) + TRIES * tried(STEPS.index(cell["step"]))
    return SIZING + cell["updates"] + learners * math.ceil(cell["budget"] / cell["tokens"])


def main() -> None:
    cells = from_rows(pq.read_table(Path(__file__).with_name("cells.parquet")).to_pylist())
    values = dict[Any, float]()
    for rung in {rung_of(cell) for cell in cells}:
        policy = policy_at_start(make_problem(rung.problem, **rung.dials))
        Truth(policy)  # the steps of a problem are found once
        begun = time.process_time()
        for _ in range(5):
            Truth(policy)
        values[rung] = (time.process_time() - begun) / 5
    played = sum(updates_of(cell) * cell["seconds"] for cell in cells if cell["seconds"] is not None)
    between = sum(updates_of(cell) * values[rung_of(cell)] for cell in cells)
    print(
        f"{len(cells)} cells, {sum(map(updates_of, cells)):,} updates on one core: {played / 60:.1f} minutes to play "
    )
    print(f"and credit them, {between / 60:.1f} for values in between; on two {(played + between) / 120:.1f}.")


if __name__ == "__main__":
    main()
