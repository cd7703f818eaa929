"""Examples whose results are worked out by hand."""

import math

_Z = 1.959963984540054  # the 97.5% quantile of the normal
# Apparent 1/2, which the added ones leave, divided by 1 - 0.1 - 0.3.
_REACH = _Z * math.sqrt(0.5 * 0.5 / (32 + _Z**2)) / 0.6
# None of two, with half of z^2 flagged among z^2 more.
_SHARE = _Z**2 / 2 / (2 + _Z**2)
_HIGH = (_SHARE - 0.1) / 0.9 + _Z * math.sqrt(_SHARE * (1 - _SHARE) / (2 + _Z**2)) / 0.9

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
        "result": {"apparent": 0.0, "corrected": 0.0, "low": 0.0, "high": _HIGH, "n": 2},
    },
]
