"""An example whose result is worked out by hand, which the page shows."""

test_cases = [
    {
        # Ranks 1 2 3 4 against 1 3 2 4: 1 - 6 * 2 / (4 * 15).
        "predictions": [[0.1, 0.2], [0.3, 0.4]],
        "references": [[-1.0, 3.0], [2.0, 5.0]],
        "result": {"credit_fidelity": 0.8, "status": "ok", "candidates": 4, "buckets": 2, "alone": 0},
    },
]
