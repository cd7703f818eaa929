"""An example whose result is worked out by hand, which the page shows."""

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
]
