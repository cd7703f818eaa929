"""An example whose result is worked out by hand, which the page shows."""

test_cases = [
    {
        # Inside 1/4 and 1; means 1/2 and 3, each 5/4 from their middle.
        "predictions": [[0.0, 1.0], [2.0, 4.0]],
        "result": {"context_variance": 0.625, "between_contexts": 1.5625, "buckets": 2, "alone": 0},
    },
]
