"""An example whose result is worked out by hand, which the page shows."""

test_cases = [
    {
        # Of 1.0 + 0.5, the 0.5 went to a message that changed nothing.
        "predictions": [1.0, 0.5, -1.0],
        "references": [0.4, 0.0, -0.2],
        "result": {"free_rider_index": 1 / 3},
    },
]
