"""An example whose result is worked out by hand, which the page shows."""

import math

_TWO = {"truth": "a", "possible": ["a", "b"]}

test_cases = [
    {
        "predictions": [["a", "a", "a", "b"]],
        "references": [_TWO],
        "alpha": 0,
        "result": {"potential": math.log(4 / 3), "oracle_potential": math.log(2), "distance": 0.5, "states": 1},
    },
]
