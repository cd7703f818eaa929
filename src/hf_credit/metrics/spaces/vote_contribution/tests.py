"""Examples whose results are worked out by hand."""

test_cases = [
    {
        # Without one of the two who are right the vote is tied, worth 1/2; without the third nothing changes.
        "predictions": [["4", "4", "5"]],
        "references": ["4"],
        "result": {
            "accuracy": 1.0,
            "voters": [1.0, 1.0, 0.0],
            "contributions": [0.5, 0.5, 0.0],
            "tied": 0.0,
            "abstained": 0.0,
        },
    },
    {
        # A tie of two, and one who abstains and so changes nothing.
        "predictions": [["4", None, "5"]],
        "references": ["4"],
        "result": {"accuracy": 0.5, "contributions": [0.5, 0.0, -0.5], "tied": 1.0, "abstained": 1 / 3},
    },
    {
        "predictions": [["4", None, "5"]],
        "references": ["5"],
        "ties": "first",
        "result": {"accuracy": 0.0, "contributions": [-1.0, 0.0, 0.0]},
    },
]
