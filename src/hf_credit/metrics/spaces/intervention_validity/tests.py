"""An example whose result is worked out by hand, which the page shows."""

import math

test_cases = [
    {
        "predictions": [True, True, False, True],
        "references": ["deletion", "deletion", "deletion", "perturbation"],
        "kinds": ["think", "think", "think", "read"],
        "logprobs": [-1.0, -4.0, -9.0, None],
        "sampled_kinds": ["think", "think", "read"],
        "sampled_logprobs": [-2.0, -2.0, -0.1],
        "result": {
            "invalid/deletion": 1 / 3,
            "out_of_distribution/deletion": 0.5,
            "proposals/deletion": 3,
            "invalid/perturbation": 0.0,
            "out_of_distribution/perturbation": math.nan,
            "proposals/perturbation": 1,
        },
    },
]
