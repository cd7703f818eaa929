"""An example whose result is worked out by hand, which the page shows."""

test_cases = [
    {
        "predictions": [0.0, 0.01, 0.02, 0.05],
        "radius": 0.02,
        "result": {"mean": 0.02, "p99": 0.0491, "within": 0.75, "n": 4},
    },
]
