"""CreditBench: compares methods of credit with exact values."""

from hf_credit.bench.measures import POLICIES, Score, area, enumerated, learning, make_method, make_problem, score
from hf_credit.bench.problem import Chance, Node, Position, Problem, View, Way
from hf_credit.bench.problems import PROBLEMS
from hf_credit.bench.table import TablePolicy
from hf_credit.bench.truth import Truth, best, solved

__all__ = [
    "POLICIES", "PROBLEMS", "Chance", "Node", "Position", "Problem", "Score", "TablePolicy", "Truth", "View", "Way",
    "area", "best", "enumerated", "learning", "make_method", "make_problem", "score", "solved",
]  # fmt: skip
