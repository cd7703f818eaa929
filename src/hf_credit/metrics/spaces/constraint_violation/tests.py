"""Examples whose results are worked out by hand."""

test_cases = [
    {
        "predictions": [1.0, 0.5, 0.0, 0.0],
        "limit": 0.25,
        "result": {"cost": 0.375, "violation": 0.125, "episodes_above": 0.5, "n": 4},
    },
    {
        "predictions": [0.1, 0.0],
        "limit": 0.15,
        "result": {"cost": 0.05, "violation": 0.0, "episodes_above": 0.0, "n": 2},
    },
]
