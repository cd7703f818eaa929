"""CreditBench: compares methods of credit with exact values.

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hf_credit.trust import on_demand

if TYPE_CHECKING:
    from hf_credit_bench.cell_sets import load_cells, publish_cells
    from hf_credit_bench.measures import Score, area, enumerated, learning, make_method, make_problem, score
    from hf_credit_bench.problem import Chance, Node, Position, Problem, View, Way
    from hf_credit_bench.problems import PROBLEMS
    from hf_credit_bench.table import TablePolicy
    from hf_credit_bench.truth import Truth, best

_HOMES = {
    "cell_sets": ("load_cells", "publish_cells"),
    "measures": ("Score", "area", "enumerated", "learning", "make_method", "make_problem", "score"),
    "problem": ("Chance", "Node", "Position", "Problem", "View", "Way"),
    "problems": ("PROBLEMS",),
    "table": ("TablePolicy",),
    "truth": ("Truth", "best"),
}

__all__ = [
    "PROBLEMS", "Chance", "Node", "Position", "Problem", "Score", "TablePolicy", "Truth", "View", "Way",
    "area", "best", "enumerated", "learning", "load_cells", "make_method", "make_problem", "publish_cells", "score",
]  # fmt: skip

__getattr__, __dir__ = on_demand(__name__, _HOMES)
