"""An example whose result is worked out by hand, which the page shows."""

test_cases = [
    {
        "predictions": [0.1, 1.0, 1.0, 1.9],
        "probabilities": [0.15, 0.25, 0.35],
        "result": {
            "median": 1.0,
            "p95": 1.765,
            "ratio_clipped": 0.25,
            "effective": 16 / (4 * 5.62),
            "selection_median": 0.25,
            "selection_at_floor": 1 / 3,
            "n": 4,
        },
    },
]
