"""An example whose result is worked out by hand, which the page shows."""

import math

test_cases = [
    {
        "predictions": [[0.5, 0.5], [0.25, 0.75]],
        "references": [[1.0, 0.0], [0.5, 0.5]],
        # ln 2, and half of ln 2 + ln(2/3); both are right; bins of .5 and of .75, each off by what lacks to 1.
        "result": {
            "deviation": (math.log(2) + 0.5 * math.log(4 / 3)) / 2,
            "accuracy": 1.0,
            "calibration_error": (0.5 + 0.25) / 2,
            "n": 2,
        },
    },
]
