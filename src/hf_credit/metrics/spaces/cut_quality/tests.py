"""Examples whose results are worked out by hand."""

import math

test_cases = [
    {
        "predictions": [[True, True, False], [False, True]],
        "references": [[0.0, 0.5, -0.2], [0.3, -1.0]],
        "played_on": [1.0, 0.0, 0.5, 0.5],
        "result": {"precision": 2 / 3, "recall": 2 / 3, "lost": 0.5, "steps": 5, "cuts": 4},
    },
    {
        "predictions": [[False, False]],
        "references": [[0.1, 0.2]],
        "result": {"precision": math.nan, "recall": math.nan, "lost": math.nan, "steps": 2, "cuts": 0},
    },
]
