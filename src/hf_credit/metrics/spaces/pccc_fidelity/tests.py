"""An example whose result is worked out by hand, which the page shows."""

test_cases = [
    {
        "predictions": [1.0, 2.0, -1.0],
        "references": [0.5, 1.0, 0.0],
        "result": {
            "rank_correlation": 1.0,
            "squared_error": (0.25 + 1 + 1) / 3,
            "bias": 0.5 / 3,
            "sign_agreement": 1.0,
            "n": 3,
        },
    },
]
