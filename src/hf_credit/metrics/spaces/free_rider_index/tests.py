"""Examples whose results are worked out by hand."""

import math

test_cases = [
    {
        # Of 1.0 + 0.5, the 0.5 went to a message that changed nothing.
        "predictions": [1.0, 0.5, -1.0],
        "references": [0.4, 0.0, -0.2],
        "result": {"free_rider_index": 1 / 3},
    },
    {
        # Blame counts for nothing, whomever it meets.
        "predictions": [2.0, -5.0],
        "references": [0.1, 0.9],
        "result": {"free_rider_index": 0.0},
    },
    {"predictions": [-1.0, 0.0], "references": [0.5, 0.5], "result": {"free_rider_index": math.nan}},
]
