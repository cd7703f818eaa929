"""Examples whose results are worked out by hand; what chance gives is drawn, and only told where it is certain."""

import math

# Two candidates with one answer each, twice: p = 2.01 / 2.02 and 0.01 / 2.02, and overall 1/2.
_DECIDED = 2.01 / 2.02 * math.log(2 * 2.01 / 2.02) + 0.01 / 2.02 * math.log(2 * 0.01 / 2.02)

test_cases = [
    {
        "predictions": [[["left", "left"], ["right", "right"]]],
        "result": {"influence": _DECIDED, "buckets": 1, "alone": 0},
    },
    {
        # White space and forms of characters do not count, and silence is an answer.
        "predictions": [[["Ⅳ  yes", "IV\nyes"], [None, "  "]]],
        "result": {"influence": _DECIDED, "buckets": 1, "alone": 0},
    },
    {
        "predictions": [[["same", "same"], ["same", "same"]], [["alone"]]],
        "result": {"influence": 0.0, "by_chance": 0.0, "buckets": 1, "alone": 1},
    },
    {
        "predictions": [[["alone"]]],
        "vocabulary": 8,
        "result": {"influence": math.nan, "by_chance": math.nan, "buckets": 0, "alone": 1},
    },
]
