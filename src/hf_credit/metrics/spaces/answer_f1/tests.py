"""Examples whose results are worked out by hand."""

test_cases = [
    {
        # Words: 3 in common of 4 and 5. Case and punctuation count.
        "predictions": ["the man had hiccups"],
        "references": ["the man had a cold"],
        "result": {"f1_word": 6 / 9, "exact": 0.0},
    },
    {
        "predictions": ["b b a", "A."],
        "references": ["a b b", "A"],
        "result": {"f1_word": 0.5, "f1_character": (1 + 2 / 3) / 2, "exact": 0.5},
    },
    {"predictions": ["a a a"], "references": ["a"], "result": {"f1_word": 0.5, "f1_character": 2 / 6}},
]
