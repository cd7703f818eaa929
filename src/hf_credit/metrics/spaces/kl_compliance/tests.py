"""Examples whose results are worked out by hand."""

test_cases = [
    {
        "predictions": [0.0, 0.01, 0.02, 0.05],
        "radius": 0.02,
        "result": {"mean": 0.02, "p99": 0.0491, "within": 0.75, "n": 4},
    },
    {"predictions": [0.025], "result": {"mean": 0.025, "p99": 0.025, "within": 1.0, "n": 1}},
]
