"""Examples of the metrics, whose results are worked out by hand; what is drawn only where it is certain."""

from __future__ import annotations

import math
from typing import Any

_TWO = {"truth": "a", "possible": ["a", "b"]}
_Z = 1.959963984540054  # the 97.5% quantile of the normal
# Apparent 1/2, which the added ones leave, divided by 1 - 0.1 - 0.3.
_REACH = _Z * math.sqrt(0.5 * 0.5 / (32 + _Z**2)) / 0.6
# None of two, with half of z^2 flagged among z^2 more.
_SHARE = _Z**2 / 2 / (2 + _Z**2)
_HIGH = (_SHARE - 0.1) / 0.9 + _Z * math.sqrt(_SHARE * (1 - _SHARE) / (2 + _Z**2)) / 0.9
# Two candidates with one answer each, twice: p = 2.01 / 2.02 and 0.01 / 2.02, and overall 1/2.
_DECIDED = 2.01 / 2.02 * math.log(2 * 2.01 / 2.02) + 0.01 / 2.02 * math.log(2 * 0.01 / 2.02)

CASES: dict[str, list[dict[str, Any]]] = {
    "answer_f1": [
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
        {"predictions": [], "references": [], "result": {"f1_word": math.nan, "exact": math.nan}},
    ],
    "belief_deviation": [
        {
            "predictions": [[0.5, 0.5], [0.25, 0.75]],
            "references": [[1.0, 0.0], [0.5, 0.5]],
            # ln 2, and half of ln 2 + ln(2/3); of the first one of two likeliest values is right, and the second is;
            # bins of .5 and of .75, of which the latter is off by what lacks to 1.
            "result": {
                "deviation": (math.log(2) + 0.5 * math.log(4 / 3)) / 2,
                "accuracy": 0.75,
                "calibration_error": 0.25 / 2,
                "n": 2,
            },
        },
        {
            "predictions": [[1.0, 0.0]],
            "references": [[0.0, 1.0]],
            "result": {"deviation": 2.0, "accuracy": 0.0, "calibration_error": 1.0, "n": 1},
        },
    ],
    "belief_potential": [
        {
            "predictions": [["a", "a", "a", "b"]],
            "references": [_TWO],
            "alpha": 0,
            "result": {"potential": math.log(4 / 3), "oracle_potential": math.log(2), "distance": 0.5, "states": 1},
        },
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
            "predictions": [1.0, 0.5, 0.0, 0.0],
            "limit": 0.25,
            "result": {"cost": 0.375, "violation": 0.125, "episodes_above": 0.5, "n": 4},
        },
        {
            "predictions": [0.1, 0.0],
            "limit": 0.15,
            "result": {"cost": 0.05, "violation": 0.0, "episodes_above": 0.0, "n": 2},
        },
    ],
    "context_variance": [
        {
            # Inside 1/4 and 1; means 1/2 and 3, each 5/4 from their middle.
            "predictions": [[0.0, 1.0], [2.0, 4.0]],
            "result": {"context_variance": 0.625, "between_contexts": 1.5625, "buckets": 2, "alone": 0},
        },
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
            # Ranks 1 2 3 4 against 1 3 2 4: 1 - 6 * 2 / (4 * 15).
            "predictions": [[0.1, 0.2], [0.3, 0.4]],
            "references": [[-1.0, 3.0], [2.0, 5.0]],
            "result": {"credit_fidelity": 0.8, "status": "ok", "candidates": 4, "buckets": 2, "alone": 0},
        },
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
            "predictions": [[True, True, False], [False, True]],
            "references": [[0.0, 0.5, -0.2], [0.3, -1.0]],
            "played_on": [1.0, 0.0, 0.5, 0.5],
            "result": {"precision": 2 / 3, "recall": 2 / 3, "lost": 0.5, "steps": 5, "cuts": 4},
        },
        {
            "predictions": [[False, False]],
            "references": [[0.1, 0.2]],
            "result": {"precision": math.nan, "recall": math.nan, "lost": math.nan, "steps": 2, "cuts": 0},
        },
    ],
    "evidence_f1": [
        {
            "predictions": [["a", "b"], ["c"]],
            "references": [["a"], ["c", "d", "e"]],
            "entailment": [1.0, 0.0],
            # 2/3 and 1/2; of the second nothing is entailed.
            "result": {"f1": 7 / 12, "precision": 0.75, "recall": 2 / 3, "reward": 0.4, "n": 2},
        },
        {
            "predictions": [[]],
            "references": [["a"]],
            "result": {"f1": 0.0, "precision": 0.0, "recall": 0.0, "reward": math.nan, "n": 1},
        },
    ],
    "free_rider_index": [
        {
            # Of 1.0 + 0.5, the 0.5 went to a message that changed nothing.
            "predictions": [1.0, 0.5, -1.0],
            "references": [0.4, 0.0, -0.2],
            "result": {"free_rider_index": 1 / 3},
        },
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
    ],
    "influence": [
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
    ],
    "intervention_validity": [
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
        {
            "predictions": [False],
            "references": ["deletion"],
            "result": {"invalid/deletion": 1.0, "out_of_distribution/deletion": math.nan, "proposals/deletion": 1},
        },
    ],
    "kl_compliance": [
        {
            "predictions": [0.0, 0.01, 0.02, 0.05],
            "radius": 0.02,
            "result": {"mean": 0.02, "p99": 0.0491, "within": 0.75, "n": 4},
        },
        {"predictions": [0.025], "result": {"mean": 0.025, "p99": 0.025, "within": 1.0, "n": 1}},
    ],
    "overlap": [
        {
            "predictions": [0.1, 1.0, 1.0, 1.9],
            "probabilities": [0.15, 0.25, 0.35],
            "result": {
                "median": 1.0,
                "p95": 1.765,
                "ratio_clipped": 0.25,
                "effective": 16 / (4 * 5.62),
                "selection_median": 0.25,
                "selection_at_floor": 1 / 3,
                "n": 4,
            },
        },
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
            "predictions": [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]],
            "k": [1, 2],
            "result": {"pass@1": 0.5, "pass@2": 0.75},
        },
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
            "predictions": [1.0, 2.0, -1.0],
            "references": [0.5, 1.0, 0.0],
            "result": {
                "rank_correlation": 1.0,
                "squared_error": (0.25 + 1 + 1) / 3,
                "bias": 0.5 / 3,
                "sign_agreement": 1.0,
                "n": 3,
            },
        },
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
            # Without one of the two who are right the vote is tied, worth 1/2; without the third nothing changes.
            "predictions": [["4", "4", "5"]],
            "references": ["4"],
            "result": {
                "accuracy": 1.0,
                "voters": [1.0, 1.0, 0.0],
                "contributions": [0.5, 0.5, 0.0],
                "tied": 0.0,
                "abstained": 0.0,
            },
        },
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
