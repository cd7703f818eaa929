"""Examples whose results are worked out by hand."""

import math

_TWO = {"truth": "a", "possible": ["a", "b"]}

test_cases = [
    {
        "predictions": [["a", "a", "a", "b"]],
        "references": [_TWO],
        "alpha": 0,
        "result": {"potential": math.log(4 / 3), "oracle_potential": math.log(2), "distance": 0.5, "states": 1},
    },
    {
        # Named beyond what is possible: three hypotheses with half a count each, 1.5 + 1 in all.
        "predictions": [["c"]],
        "references": [_TWO],
        "result": {"potential": math.log(2.5 / 0.5), "distance": 0.3 + 0.3 + 0.6},
    },
    {
        "predictions": [["b"], ["a"]],
        "references": [_TWO, {"truth": "a", "possible": ["a"]}],
        "alpha": 0,
        "result": {"potential": math.inf, "oracle_potential": math.log(2) / 2, "distance": 0.5},
    },
]
