"""An example whose result is worked out by hand, which the page shows."""

test_cases = [
    {
        "predictions": [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]],
        "k": [1, 2],
        "result": {"pass@1": 0.5, "pass@2": 0.75},
    },
]
