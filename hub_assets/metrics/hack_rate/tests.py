"""Examples whose results are worked out by hand."""

import math

# Apparent 1/2, divided by 1 - 0.1 - 0.3; the number is the 97.5% quantile of the normal.
_REACH = 1.959963984540054 * math.sqrt(0.5 * 0.5 / 32) / 0.6

test_cases = [
    {
        "predictions": [True] * 16 + [False] * 16,
        "false_positive_rate": 0.1,
        "false_negative_rate": 0.3,
        "result": {"apparent": 0.5, "corrected": 2 / 3, "low": 2 / 3 - _REACH, "high": 2 / 3 + _REACH, "n": 32},
    },
    {
        # Fewer flags than a clean agent would get.
        "predictions": [False, False],
        "false_positive_rate": 0.1,
        "result": {"apparent": 0.0, "corrected": 0.0, "low": 0.0, "high": 0.0, "n": 2},
    },
]
