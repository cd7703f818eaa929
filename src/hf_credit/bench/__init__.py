"""CreditBench: compares methods of credit with exact values."""

from hf_credit.bench.measures import POLICIES as POLICIES
from hf_credit.bench.measures import Score as Score
from hf_credit.bench.measures import area as area
from hf_credit.bench.measures import enumerated as enumerated
from hf_credit.bench.measures import learning as learning
from hf_credit.bench.measures import make_method as make_method
from hf_credit.bench.measures import make_problem as make_problem
from hf_credit.bench.measures import score as score
from hf_credit.bench.problem import Chance as Chance
from hf_credit.bench.problem import Node as Node
from hf_credit.bench.problem import Position as Position
from hf_credit.bench.problem import Problem as Problem
from hf_credit.bench.problem import View as View
from hf_credit.bench.problem import Way as Way
from hf_credit.bench.problems import PROBLEMS as PROBLEMS
from hf_credit.bench.table import TablePolicy as TablePolicy
from hf_credit.bench.truth import Truth as Truth
from hf_credit.bench.truth import best as best
from hf_credit.bench.truth import solved as solved
