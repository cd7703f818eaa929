"""An example whose result is worked out by hand, which the page shows."""

import math

_Z = 1.959963984540054  # the 97.5% quantile of the normal
# Apparent 1/2, which the added ones leave, divided by 1 - 0.1 - 0.3.
_REACH = _Z * math.sqrt(0.5 * 0.5 / (32 + _Z**2)) / 0.6

test_cases = [
    {
        "predictions": [True] * 16 + [False] * 16,
        "false_positive_rate": 0.1,
        "false_negative_rate": 0.3,
        "result": {"apparent": 0.5, "corrected": 2 / 3, "low": 2 / 3 - _REACH, "high": 2 / 3 + _REACH, "n": 32},
    },
]
