"""An example whose result is worked out by hand, which the page shows."""

test_cases = [
    {
        "predictions": [["a", "b"], ["c"]],
        "references": [["a"], ["c", "d", "e"]],
        "entailment": [1.0, 0.0],
        # 2/3 and 1/2; of the second nothing is entailed.
        "result": {"f1": 7 / 12, "precision": 0.75, "recall": 2 / 3, "reward": 0.4, "n": 2},
    },
]
