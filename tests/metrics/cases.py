"""Further examples of the metrics, whose results are worked out by hand."""

from __future__ import annotations

import math
from typing import Any

_TWO = {"truth": "a", "possible": ["a", "b"]}
_Z = 1.959963984540054  # the 97.5% quantile of the normal
# None of two, with half of z^2 flagged among z^2 more.
_SHARE = _Z**2 / 2 / (2 + _Z**2)
_HIGH = (_SHARE - 0.1) / 0.9 + _Z * math.sqrt(_SHARE * (1 - _SHARE) / (2 + _Z**2)) / 0.9
# Two candidates with one answer each, twice: p = 2.01 / 2.02 and 0.01 / 2.02, and overall 1/2.
_DECIDED = 2.01 / 2.02 * math.log(2 * 2.01 / 2.02) + 0.01 / 2.02 * math.log(2 * 0.01 / 2.02)

MORE: dict[str, list[dict[str, Any]]] = {
    "answer_f1": [
        {
            "predictions": ["b b a", "A."],
            "references": ["a b b", "A"],
            "result": {"f1_word": 0.5, "f1_character": (1 + 2 / 3) / 2, "exact": 0.5},
        },
        {"predictions": ["a a a"], "references": ["a"], "result": {"f1_word": 0.5, "f1_character": 2 / 6}},
    ],
    "belief_deviation": [
        {
            "predictions": [[1.0, 0.0]],
            "references": [[0.0, 1.0]],
            "result": {"deviation": 2.0, "accuracy": 0.0, "calibration_error": 1.0, "n": 1},
        },
    ],
    "belief_potential": [
        {
            # Named beyond what is possible: three hypotheses with half a count each, 1.5 + 1 in all.
            "predictions": [["c"]],
            "references": [_TWO],
            "result": {"potential": math.log(2.5 / 0.5), "distance": 0.3 + 0.3 + 0.6},
        },
        {
            "predictions": [["b"], ["a"]],
            "references": [_TWO, {"truth": "a", "possible": ["a"]}],
            "alpha": 0,
            "result": {"potential": math.inf, "oracle_potential": math.log(2) / 2, "distance": 0.5},
        },
    ],
    "constraint_violation": [
        {
            "predictions": [0.1, 0.0],
            "limit": 0.15,
            "result": {"cost": 0.05, "violation": 0.0, "episodes_above": 0.0, "n": 2},
        },
    ],
    "context_variance": [
        {
            "predictions": [[0.5, 0.5], [0.5, 0.5]],
            "result": {"context_variance": 0.0, "between_contexts": 0.0, "buckets": 2, "alone": 0},
        },
        {
            "predictions": [[0.0, 2.0], [7.0]],
            "result": {"context_variance": 1.0, "between_contexts": 0.0, "buckets": 1, "alone": 1},
        },
        {
            "predictions": [[7.0]],
            "result": {"context_variance": math.nan, "between_contexts": math.nan, "buckets": 0, "alone": 1},
        },
    ],
    "credit_fidelity": [
        {
            # Right inside each bucket, wrong between them: ranks 1 2 3 4 against 3 4 1 2.
            "predictions": [[0.0, 1.0], [10.0, 11.0]],
            "references": [[10.0, 11.0], [0.0, 1.0]],
            "result": {"credit_fidelity": -0.6, "status": "ok", "candidates": 4, "buckets": 2, "alone": 0},
        },
        {
            # A bucket of one candidate says nothing of which was better.
            "predictions": [[1.0, 2.0, 3.0], [99.0]],
            "references": [[1.0, 2.0, 9.0], [-99.0]],
            "result": {"credit_fidelity": 1.0, "status": "ok", "candidates": 3, "buckets": 1, "alone": 1},
        },
        {
            "predictions": [[0.5, 0.5]],
            "references": [[1.0, 2.0]],
            "result": {
                "credit_fidelity": math.nan,
                "status": "constant credits",
                "candidates": 2,
                "buckets": 1,
                "alone": 0,
            },
        },
    ],
    "cut_quality": [
        {
            "predictions": [[False, False]],
            "references": [[0.1, 0.2]],
            "result": {"precision": math.nan, "recall": math.nan, "lost": math.nan, "steps": 2, "cuts": 0},
        },
    ],
    "evidence_f1": [
        {
            "predictions": [[]],
            "references": [["a"]],
            "result": {"f1": 0.0, "precision": 0.0, "recall": 0.0, "reward": math.nan, "n": 1},
        },
    ],
    "free_rider_index": [
        {
            # Blame counts for nothing, whomever it meets.
            "predictions": [2.0, -5.0],
            "references": [0.1, 0.9],
            "result": {"free_rider_index": 0.0},
        },
        {"predictions": [-1.0, 0.0], "references": [0.5, 0.5], "result": {"free_rider_index": math.nan}},
    ],
    "hack_rate": [
        {
            # Fewer flags than a clean agent would get.
            "predictions": [False, False],
            "false_positive_rate": 0.1,
            "result": {"apparent": 0.0, "corrected": 0.0, "low": 0.0, "high": _HIGH, "n": 2},
        },
    ],
    "influence": [
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
    ],
    "intervention_validity": [
        {
            "predictions": [False],
            "references": ["deletion"],
            "result": {"invalid/deletion": 1.0, "out_of_distribution/deletion": math.nan, "proposals/deletion": 1},
        },
    ],
    "kl_compliance": [
        {"predictions": [0.025], "result": {"mean": 0.025, "p99": 0.025, "within": 1.0, "n": 1}},
    ],
    "overlap": [
        {
            "predictions": [6.0],
            "result": {
                "median": 6.0,
                "p95": 6.0,
                "ratio_clipped": 1.0,
                "effective": 1.0,
                "selection_median": math.nan,
                "selection_at_floor": math.nan,
                "n": 1,
            },
        },
    ],
    "pass_at_k": [
        {
            # One of five is right: 1 - C(4, 2) / C(5, 2) = 1 - 6 / 10.
            "predictions": [[0.0, 0.0, 1.0, 0.0, 0.0]],
            "k": [2, 5],
            "result": {"pass@2": 0.4, "pass@5": 1.0},
        },
        {
            # What could not be scored is wrong, and so is what is right in part.
            "predictions": [[None, 0.9], [1.0, None]],
            "result": {"pass@1": 0.25},
        },
        {"predictions": [[None, 0.9], [1.0, None]], "threshold": 0.5, "result": {"pass@1": 0.5}},
    ],
    "pccc_fidelity": [
        {
            "predictions": [0.25, -0.25],
            "references": [0.0, 0.0],
            "result": {
                "rank_correlation": math.nan,
                "squared_error": 0.0625,
                "bias": 0.0,
                "sign_agreement": math.nan,
                "n": 2,
            },
        },
    ],
    "vote_contribution": [
        {
            # A tie of two, and one who abstains and so changes nothing.
            "predictions": [["4", None, "5"]],
            "references": ["4"],
            "result": {"accuracy": 0.5, "contributions": [0.5, 0.0, -0.5], "tied": 1.0, "abstained": 1 / 3},
        },
        {
            "predictions": [["4", None, "5"]],
            "references": ["5"],
            "ties": "first",
            "result": {"accuracy": 0.0, "contributions": [-1.0, 0.0, 0.0]},
        },
    ],
}
