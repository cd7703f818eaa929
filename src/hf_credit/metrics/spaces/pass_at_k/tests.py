"""Examples whose results are worked out by hand."""

test_cases = [
    {
        "predictions": [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]],
        "k": [1, 2],
        "result": {"pass@1": 0.5, "pass@2": 0.75},
    },
    {
        # One of five is right: 1 - C(4, 2) / C(5, 2) = 1 - 6 / 10.
        "predictions": [[0.0, 0.0, 1.0, 0.0, 0.0]],
        "k": [2, 5],
        "result": {"pass@2": 0.4, "pass@5": 1.0},
    },
    {
        # What could not be scored is wrong, and so is what is right in part.
        "predictions": [[None, 0.9], [1.0, None]],
        "result": {"pass@1": 0.25},
    },
    {"predictions": [[None, 0.9], [1.0, None]], "threshold": 0.5, "result": {"pass@1": 0.5}},
]
