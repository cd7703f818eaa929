"""An example whose result is worked out by hand, which the page shows."""

import math

# Two candidates with one answer each, twice: p = 2.01 / 2.02 and 0.01 / 2.02, and overall 1/2.
_DECIDED = 2.01 / 2.02 * math.log(2 * 2.01 / 2.02) + 0.01 / 2.02 * math.log(2 * 0.01 / 2.02)

test_cases = [
    {
        "predictions": [[["left", "left"], ["right", "right"]]],
        "result": {"influence": _DECIDED, "buckets": 1, "alone": 0},
    },
]
