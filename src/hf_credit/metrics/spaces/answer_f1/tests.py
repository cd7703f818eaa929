"""An example whose result is worked out by hand, which the page shows."""

test_cases = [
    {
        # Words: 3 in common of 4 and 5. Case and punctuation count.
        "predictions": ["the man had hiccups"],
        "references": ["the man had a cold"],
        "result": {"f1_word": 6 / 9, "exact": 0.0},
    },
]
