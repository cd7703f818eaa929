"""An example whose result is worked out by hand, which the page shows."""

test_cases = [
    {
        "predictions": [1.0, 0.5, 0.0, 0.0],
        "limit": 0.25,
        "result": {"cost": 0.375, "violation": 0.125, "episodes_above": 0.5, "n": 4},
    },
]
