"""How much of their targets' variance critics explain in the micro recipes, taught in several ways.

    python evaluation/bench/critics.py    # fills critics.jsonl, resumable, and writes critics.md

A critic explains 1 - Var(target - value) / Var(target), with values from before it learned from the targets; the mean
is over the second half of a training. What a table can explain is no bound, and shows what there is to be known.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from hf_credit.bench.cells import read
from hf_credit.cli.init_policy import init_policy
from hf_credit.evaluation.markdown import table
from hf_credit.evaluation.statistics import mean_with_interval, paired_difference

HERE = Path(__file__).parent
RESULTS = HERE / "critics.jsonl"
"""The starts are those that the recipes' first lines make."""
RECIPES: Mapping[str, tuple[str, Mapping[str, Any]]] = {}


def main() -> None: ...


if __name__ == "__main__":
    main()
