"""Examples whose results are worked out by hand."""

import math

test_cases = [
    {
        # Inside 1/4 and 1; means 1/2 and 3, each 5/4 from their middle.
        "predictions": [[0.0, 1.0], [2.0, 4.0]],
        "result": {"context_variance": 0.625, "between_contexts": 1.5625, "buckets": 2, "alone": 0},
    },
    {
        "predictions": [[0.5, 0.5], [0.5, 0.5]],
        "result": {"context_variance": 0.0, "between_contexts": 0.0, "buckets": 2, "alone": 0},
    },
    {
        "predictions": [[0.0, 2.0], [7.0]],
        "result": {"context_variance": 1.0, "between_contexts": 0.0, "buckets": 1, "alone": 1},
    },
    {
        "predictions": [[7.0]],
        "result": {"context_variance": math.nan, "between_contexts": math.nan, "buckets": 0, "alone": 1},
    },
]
