"""An example whose result is worked out by hand, which the page shows."""

test_cases = [
    {
        "predictions": [[True, True, False], [False, True]],
        "references": [[0.0, 0.5, -0.2], [0.3, -1.0]],
        "played_on": [1.0, 0.0, 0.5, 0.5],
        "result": {"precision": 2 / 3, "recall": 2 / 3, "lost": 0.5, "steps": 5, "cuts": 4},
    },
]
