"""Problems of mathematics and code in a common format, and the gate that keeps evaluation problems out of training."""

from hf_credit.data.overlap import OverlapError, drop_overlap, normal_form, refuse_overlap
from hf_credit.data.problem_sets import PROBLEM_SETS, Problems, is_problem_set, load_problems
from hf_credit.data.rows import fingerprint, uid_sha

__all__ = [
    "PROBLEM_SETS", "OverlapError", "Problems", "drop_overlap", "fingerprint", "is_problem_set", "load_problems",
    "normal_form", "refuse_overlap", "uid_sha",
]  # fmt: skip
