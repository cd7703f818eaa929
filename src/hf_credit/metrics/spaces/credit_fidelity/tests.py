"""Examples whose results are worked out by hand."""

import math

test_cases = [
    {
        # Ranks 1 2 3 4 against 1 3 2 4: 1 - 6 * 2 / (4 * 15).
        "predictions": [[0.1, 0.2], [0.3, 0.4]],
        "references": [[-1.0, 3.0], [2.0, 5.0]],
        "result": {"credit_fidelity": 0.8, "status": "ok", "candidates": 4, "buckets": 2, "alone": 0},
    },
    {
        # Right inside each bucket, wrong between them: ranks 1 2 3 4 against 3 4 1 2.
        "predictions": [[0.0, 1.0], [10.0, 11.0]],
        "references": [[10.0, 11.0], [0.0, 1.0]],
        "result": {"credit_fidelity": -0.6, "status": "ok", "candidates": 4, "buckets": 2, "alone": 0},
    },
    {
        # A bucket of one candidate says nothing of which was better.
        "predictions": [[1.0, 2.0, 3.0], [99.0]],
        "references": [[1.0, 2.0, 9.0], [-99.0]],
        "result": {"credit_fidelity": 1.0, "status": "ok", "candidates": 3, "buckets": 1, "alone": 1},
    },
    {
        "predictions": [[0.5, 0.5]],
        "references": [[1.0, 2.0]],
        "result": {
            "credit_fidelity": math.nan,
            "status": "constant credits",
            "candidates": 2,
            "buckets": 1,
            "alone": 0,
        },
    },
]
